//! Detects other work on this machine.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Finding;
use crate::measure::{Cores, TICK};

/// Observes the machine for a moment. It is a warning if more than a tenth of the cores are busy, and a grave finding
/// if more than half are. Names the processes.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn busy(cores: &[usize]) -> Result<Option<Finding>> {
    let (before, processes) = (Cores::now()?, processes());
    let start = Instant::now();
    std::thread::sleep(SAMPLE);
    let load = Cores::now()?.load_since(&before, cores, start.elapsed());
    if load < WARN {
        return Ok(None);
    }
    let text = format!(
        "the cores are {:.0} % busy with other work ({}): stop it, or wait",
        100.0 * load,
        names(&processes, &self::processes(), start.elapsed())
    );
    Ok(Some(if load < GRAVE { Finding::warn(text) } else { Finding::grave(text) }))
}

/// Ticks of each process so far, with its name.
fn processes() -> HashMap<u32, (String, u64)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (start, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace().skip(11);
            let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
            Some((pid, (start.split_once('(')?.1.to_owned(), ticks)))
        })
        .collect()
}

/// The three busiest processes, with their share of a core.
fn names(before: &HashMap<u32, (String, u64)>, after: &HashMap<u32, (String, u64)>, elapsed: Duration) -> String {
    let mut used: Vec<(u64, u32, &str)> = after
        .iter()
        .map(|(&pid, (name, ticks))| (ticks - before.get(&pid).map_or(0, |b| b.1).min(*ticks), pid, name.as_str()))
        .filter(|(ticks, ..)| *ticks > 0)
        .collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    let share = |ticks: u64| 100.0 * ticks as f64 * TICK.as_secs_f64() / elapsed.as_secs_f64();
    let named: Vec<String> =
        used.iter().take(3).map(|(ticks, pid, name)| format!("{name} [{pid}] {:.0} %", share(*ticks))).collect();
    if named.is_empty() { "none that this process can see".to_owned() } else { named.join(", ") }
}

/// Long enough for 50 ticks.
const SAMPLE: Duration = Duration::from_millis(500);

/// An idle desktop stays below this.
const WARN: f64 = 0.1;

/// As much as another server would use.
const GRAVE: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_named() {
        let of = |list: &[(u32, &str, u64)]| list.iter().map(|&(p, n, t)| (p, (n.to_owned(), t))).collect();
        let before = of(&[(1, "init", 5), (2, "rustc", 10)]);
        let after = of(&[(1, "init", 5), (2, "rustc", 60), (3, "qemu", 25)]);
        assert_eq!(names(&before, &after, Duration::from_millis(500)), "rustc [2] 100 %, qemu [3] 50 %");
        assert_eq!(names(&after, &after, SAMPLE), "none that this process can see");
    }
}
