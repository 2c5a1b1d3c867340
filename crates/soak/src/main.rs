//! Everything that may happen to a server, for as long as one likes.
//!
//! ```text
//! kill     a server with a cache, killed at any moment
//! upgrade  processes that take over under load                 each with servers, clients and an origin of its own,
//! stalled  HTTP/2 clients that take nothing                    side by side, in rounds of a minute
//! full     a cache on a full disk
//! hung     a cache on a disk that hangs
//! ```

mod disks;
mod figures;
mod files;
mod full;
mod hung;
mod kill;
mod stalled;
mod undo;
mod upgrade;
mod watch;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use sealion_testkit::Fault;

use self::world::World;

/// Torture the server for some minutes, as root: kills, upgrades, stalled clients, a full disk and a disk that hangs
///
/// Every response is compared with what its origin sends. The last line has the figures. The exit code is 0 only if no fault was found;
/// each is printed when it is found.
#[derive(Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak")]
struct Soak {
    /// Minutes that it runs
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// The program under test [default: the debug build, made first]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Only these scenarios
    #[arg(long, value_delimiter = ',')]
    only: Vec<Scenario>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Servers with a cache that are killed
    Kill,
    /// Processes that take over
    Upgrade,
    /// HTTP/2 clients that take nothing
    Stalled,
    /// A cache on a full disk
    Full,
    /// A cache on a disk that hangs
    Hung,
}

/// The outcome of a round.
type Outcome = Result<(), Fault>;

/// A new directory, server and origin then.
const ROUND: Duration = Duration::from_secs(60);

/// The pause between two looks at descriptors and memory.
const LOOK: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    match Soak::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Soak {
    /// Runs all scenarios.
    ///
    /// # Errors
    /// The first fault.
    fn run(&self) -> Result<()> {
        ensure!(rustix::process::geteuid().is_root(), "run it as root: it mounts and freezes disks");
        let time = Duration::try_from_secs_f64(self.minutes * 60.0).context("--minutes")?;
        let world = World::new(self.program()?).context("cannot start")?;
        let scenarios: Vec<Scenario> = match self.only[..] {
            [] => Scenario::value_variants().to_vec(),
            ref only => only.to_vec(),
        };
        let (began, is_over) = (Instant::now(), AtomicBool::new(false));
        thread::scope(|scope| {
            let runs = scenarios.iter().map(|scenario| scope.spawn(|| scenario.repeat(&world, began + time)));
            let runs: Vec<_> = runs.collect();
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    watch::sample(world.group(), &world.figures);
                    thread::sleep(LOOK);
                }
            });
            runs.into_iter().for_each(|run| run.join().expect("panics of rounds are caught"));
            is_over.store(true, Ordering::Relaxed);
        });
        println!("soak: {} s: {}", began.elapsed().as_secs(), world.figures);
        match &world.figures.faults()[..] {
            [] => Ok(()),
            [first, more @ ..] => bail!("{} faults, the first:\n{first}", more.len() + 1),
        }
    }

    fn program(&self) -> Result<PathBuf> {
        if let Some(program) = &self.program {
            return program.canonicalize().with_context(|| format!("cannot find {}", program.display()));
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.current_dir(root).args(["build", "--locked", "--package=sealion"]);
        ensure!(build.status().context("cannot run cargo")?.success(), "{build:?} failed");
        // cargo puts the programs of a workspace side by side.
        let own = std::env::current_exe().context("cannot find this program")?;
        Ok(own.with_file_name("sealion"))
    }
}

impl Scenario {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// One round after another. A round ends early when it finds a fault.
    fn repeat(self, world: &World, until: Instant) {
        while Instant::now() < until {
            let end = until.min(Instant::now() + ROUND);
            let round = match self {
                Self::Kill => kill::round,
                Self::Upgrade => upgrade::round,
                Self::Stalled => stalled::round,
                Self::Full => full::round,
                Self::Hung => hung::round,
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| round(world, end)));
            if let Err(fault) = outcome.unwrap_or_else(|panic| Err(fault_of(&*panic))) {
                world.figures.note(&self.name(), &fault);
            }
        }
    }
}

/// The outcome of a thread, whose panic is a fault too.
fn joined(thread: ScopedJoinHandle<'_, Outcome>) -> Outcome {
    thread.join().unwrap_or_else(|panic| Err(fault_of(&*panic)))
}

fn fault_of(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Fault::Broken(text.unwrap_or_else(|| "a panic without words".to_owned()))
}
