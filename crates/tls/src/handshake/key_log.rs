//! A file of secrets, by which a program such as Wireshark reads recorded connections (the format of `SSLKEYLOGFILE`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The file. A reader of the file can read all connections since it was opened, and change those that are open.
#[derive(Debug)]
pub struct KeyLogFile(File);

impl KeyLogFile {
    /// Opens or makes a file that its owner alone can read.
    ///
    /// # Errors
    /// It cannot be written, or others can read it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::other("others than its owner can read it: `chmod 600` it"));
        }
        Ok(Self(file))
    }

    /// Writes a secret in one call, so that lines of several workers do not mix. A full disk loses lines, and no connection.
    pub(super) fn write(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let _ = (&self.0).write_all(line.as_bytes());
    }
}
