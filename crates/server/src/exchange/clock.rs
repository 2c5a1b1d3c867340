//! The clock for Date.

use std::cell::Cell;
use std::time::{Duration, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use sealion_http::HttpTime;

/// The current time for Date, formatted at most once a second per thread. Falls back to the epoch if the clock is out of range.
pub(crate) fn now() -> HttpTime {
    thread_local! {
        static NOW: Cell<Option<(i64, HttpTime)>> = const { Cell::new(None) };
    }
    // Tick resolution is enough for whole seconds, and costs a third of the precise clock.
    let seconds = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    if let Some((kept, now)) = NOW.get()
        && kept == seconds
    {
        return now;
    }
    let since_epoch = Duration::from_secs(seconds.try_into().unwrap_or(0));
    let time = UNIX_EPOCH.checked_add(since_epoch).and_then(HttpTime::new);
    let now = time.or_else(|| HttpTime::new(UNIX_EPOCH)).expect("the epoch is an HTTP-date");
    NOW.set(Some((seconds, now)));
    now
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use sealion_http::date::WholeSeconds;

    use super::*;

    #[test]
    fn now_is_now() {
        let earliest = WholeSeconds::of(SystemTime::now() - Duration::from_secs(2)).unwrap();
        let now = now().seconds();
        assert!((earliest..=WholeSeconds::of(SystemTime::now()).unwrap()).contains(&now), "{now:?}");
    }
}
