//! `sealion passwd`: makes a line for a file of users.

use std::io::{BufRead, IsTerminal, stdin};
use std::process::ExitCode;

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::print;

/// Arguments of `sealion passwd`.
#[derive(Debug, Clone, Args)]
pub(super) struct PasswdArgs {
    /// Name of the user
    pub user: String,
}

/// Reads a password twice from the terminal, or a line from standard input, and prints `USER:HASH`.
///
/// # Errors
/// The name or the password cannot be used.
pub(super) fn run(args: &PasswdArgs) -> Result<ExitCode, String> {
    let user = &args.user;
    if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
        return Err(format!("{user:?} cannot be the name of a user: write one without colon and control characters"));
    }
    let password = if stdin().is_terminal() {
        let password = ask(&format!("password of {user}: "))?;
        if ask("once more: ")? != password {
            return Err("the passwords differ: try again".to_owned());
        }
        password
    } else {
        read_line()?
    };
    print(&format!("{user}:{}\n", hash(&password)?)).map(|()| ExitCode::SUCCESS)
}

fn hash(password: &str) -> Result<String, String> {
    if password.is_empty() {
        return Err("the password is empty: write one".to_owned());
    }
    if password.len() > MAX_LEN {
        return Err(format!(
            "the password has more than {MAX_LEN} bytes, and bcrypt would ignore the others: write a shorter one"
        ));
    }
    let hash =
        bcrypt::hash_with_result(password, COST).map_err(|error| format!("cannot hash the password: {error}"))?;
    Ok(hash.format_for_version(bcrypt::Version::TwoY))
}

/// Asks on standard error, without echoing the input.
fn ask(question: &str) -> Result<String, String> {
    let fail = |error: rustix::io::Errno| format!("cannot hide the password: {error}");
    let before = tcgetattr(stdin()).map_err(fail)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    eprint!("{question}");
    tcsetattr(stdin(), OptionalActions::Flush, &hidden).map_err(fail)?;
    let answer = read_line();
    tcsetattr(stdin(), OptionalActions::Flush, &before).map_err(fail)?;
    eprintln!();
    answer
}

fn read_line() -> Result<String, String> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).map_err(|error| format!("cannot read the password: {error}"))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// bcrypt ignores bytes beyond this length.
const MAX_LEN: usize = 72;

/// Rounds as a power of two. INHERITED: the minimum for bcrypt in OWASP's Password Storage Cheat Sheet.
const COST: u32 = 10;
