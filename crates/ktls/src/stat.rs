//! The kernel's counters of TLS sockets, `/proc/net/tls_stat`.

use rustix::io::Errno;

use crate::{Error, Operation};

/// The counters of one network namespace at one moment.
///
/// They include the namespace's other processes. `TlsCurr*` rise and fall; the others only rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsStat {
    /// In the kernel's order, with the kernel's names.
    counters: Vec<(String, u64)>,
}

impl TlsStat {
    /// Reads the counters.
    ///
    /// `Unsupported`: the file is absent, because the TLS module is not loaded.
    pub fn read() -> Result<Self, Error> {
        let text = std::fs::read_to_string("/proc/net/tls_stat").map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::from_errno(Operation::ReadStat, errno)
        })?;
        Ok(Self::parse(&text))
    }

    /// Parses the file's text: a name and a number per line. Skips other lines, because a newer kernel may add any.
    pub fn parse(text: &str) -> Self {
        let counters = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let (name, value) = (words.next()?, words.next()?.parse().ok()?);
                words.next().is_none().then(|| (name.to_owned(), value))
            })
            .collect();
        Self { counters }
    }

    /// A counter by the kernel's name, such as `"TlsTxSw"`. `None` if this kernel lacks it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(n, _)| n == name).map(|&(_, value)| value)
    }

    /// All counters in the kernel's order, including unknown ones.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counters.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The difference from `earlier` for each counter. A counter that appeared since then, because the module was
    /// loaded, counts from 0.
    pub fn delta(&self, earlier: &Self) -> Vec<(&str, i64)> {
        self.iter()
            .filter_map(|(name, now)| {
                let change = now.wrapping_sub(earlier.get(name).unwrap_or(0)).cast_signed();
                (change != 0).then_some((name, change))
            })
            .collect()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $method:ident = $name:literal;)*) => {
        /// The counters of Linux 6.1 to 7.2 by name; `None` where this kernel lacks one.
        impl TlsStat {
            $($(#[$doc])* pub fn $method(&self) -> Option<u64> { self.get($name) })*
        }

        #[cfg(test)]
        type Getter = fn(&TlsStat) -> Option<u64>;
        #[cfg(test)]
        const NAMED: &[(&str, Getter)] = &[$(($name, TlsStat::$method)),*];
    };
}

counters! {
    /// Sockets that currently send with the kernel's own cipher.
    curr_tx_sw = "TlsCurrTxSw";
    /// Sockets that currently receive with the kernel's own cipher.
    curr_rx_sw = "TlsCurrRxSw";
    /// Sockets that currently send with a network card's cipher.
    curr_tx_device = "TlsCurrTxDevice";
    /// Sockets that currently receive with a network card's cipher.
    curr_rx_device = "TlsCurrRxDevice";
    /// Sockets ever opened for sending with the kernel's own cipher.
    tx_sw = "TlsTxSw";
    /// Sockets ever opened for receiving with the kernel's own cipher.
    rx_sw = "TlsRxSw";
    /// Sockets ever opened for sending with the network card's cipher.
    tx_device = "TlsTxDevice";
    /// Sockets ever opened for receiving with the network card's cipher.
    rx_device = "TlsRxDevice";
    /// Records that failed authentication.
    decrypt_error = "TlsDecryptError";
    /// Resynchronisations requested from a network card (`tls.rst` calls it `TlsDeviceRxResync`).
    rx_device_resync = "TlsRxDeviceResync";
    /// Records decrypted twice, because `TLS_RX_EXPECT_NO_PAD` was wrong.
    decrypt_retry = "TlsDecryptRetry";
    /// Records decrypted twice that did have padding.
    rx_no_pad_violation = "TlsRxNoPadViolation";
    /// Receiving keys renewed. Linux 6.14.
    rx_rekey_ok = "TlsRxRekeyOk";
    /// Receiving keys refused. Linux 6.14.
    rx_rekey_error = "TlsRxRekeyError";
    /// Sending keys renewed. Linux 6.14.
    tx_rekey_ok = "TlsTxRekeyOk";
    /// Sending keys refused. Linux 6.14.
    tx_rekey_error = "TlsTxRekeyError";
    /// KeyUpdate messages received. Linux 6.14.
    rx_rekey_received = "TlsRxRekeyReceived";
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX_6_1: &str = "TlsCurrTxSw                     \t3\nTlsTxSw                         \t10\n\
                             TlsRxNoPadViolation             \t0\n";

    #[test]
    fn every_named_counter_is_read_by_its_name() {
        for (i, (name, getter)) in NAMED.iter().enumerate() {
            let stat = TlsStat::parse(&format!("TlsOther\t99\n{name:<32}\t{i}\n"));
            assert_eq!(getter(&stat), Some(i as u64), "{name}");
            assert_eq!(getter(&TlsStat::default()), None, "{name}");
        }
        assert_eq!(NAMED.len(), 17);
    }

    #[test]
    fn unknown_counters_are_kept_and_odd_lines_skipped() {
        let stat = TlsStat::parse("TlsNew\t18446744073709551615\n\nTlsText\tmany\nTlsThree 1 2\nTlsTxSw\t1");
        assert_eq!(stat.iter().collect::<Vec<_>>(), [("TlsNew", u64::MAX), ("TlsTxSw", 1)]);
    }

    #[test]
    fn delta_tells_only_changes_down_too() {
        let before = TlsStat::parse(LINUX_6_1);
        let after = TlsStat::parse("TlsCurrTxSw\t2\nTlsTxSw\t12\nTlsRxNoPadViolation\t0\nTlsTxRekeyOk\t1\n");
        assert_eq!(after.delta(&before), [("TlsCurrTxSw", -1), ("TlsTxSw", 2), ("TlsTxRekeyOk", 1)]);
    }
}
