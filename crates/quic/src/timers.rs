//! The next timeout of many connections: a heap whose entries may be outdated.
//!
//! A connection's timeout moves with nearly every packet, mostly to later. Such a move changes no entry: an entry that is
//! due too early is replaced when it is reached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    slots: Vec<Timer>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Timer {
    due: Option<Instant>,
    /// The earliest entry in the heap, which is not later than `due`.
    entry: Option<Instant>,
}

impl Timers {
    /// Sets the timeout of the connection at `index`.
    pub(crate) fn set(&mut self, index: usize, due: Option<Instant>) {
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Timer::default());
        }
        let timer = &mut self.slots[index];
        timer.due = due;
        if let Some(due) = due
            && timer.entry.is_none_or(|entry| due < entry)
        {
            timer.entry = Some(due);
            self.heap.push(Reverse((due, index)));
        }
    }

    /// The first timeout, or an earlier one that is outdated but cheap.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        loop {
            let Reverse((entry, index)) = *self.heap.peek()?;
            match self.slots[index].due {
                Some(due) if due <= entry => return Some(entry),
                _ => self.replace(),
            }
        }
    }

    /// Takes a connection whose timeout is reached. Its timeout is unset.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<usize> {
        while self.next()? <= now {
            let Reverse((entry, index)) = self.heap.pop()?;
            let timer = &mut self.slots[index];
            if timer.entry == Some(entry) {
                *timer = Timer::default();
                return Some(index);
            }
        }
        None
    }

    /// Replaces the first entry, which is too early, or drops it.
    fn replace(&mut self) {
        let Some(Reverse((entry, index))) = self.heap.pop() else { return };
        let timer = &mut self.slots[index];
        // A later entry of the same connection is outdated, too, but costs no more than this.
        if timer.entry == Some(entry) {
            timer.entry = timer.due;
            if let Some(due) = timer.due {
                self.heap.push(Reverse((due, index)));
            }
        }
    }

    #[cfg(test)]
    fn entries(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_are_due_in_order() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timers = Timers::default();
        timers.set(0, Some(at(30)));
        timers.set(5, Some(at(10)));
        timers.set(2, Some(at(20)));
        timers.set(2, None);
        assert_eq!((timers.next(), timers.pop(at(9))), (Some(at(10)), None));
        assert_eq!((timers.pop(at(100)), timers.pop(at(100)), timers.pop(at(100))), (Some(5), Some(0), None));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_timeout_that_moves_to_later_costs_no_entry() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timers = Timers::default();
        for millis in 10..1000 {
            timers.set(0, Some(at(millis)));
        }
        assert_eq!(timers.entries(), 1);
        assert_eq!((timers.pop(at(998)), timers.pop(at(999))), (None, Some(0)));
        // Earlier, then later, then never.
        timers.set(0, Some(at(2000)));
        timers.set(0, Some(at(1500)));
        timers.set(0, Some(at(1600)));
        assert_eq!((timers.pop(at(1599)), timers.pop(at(1600)), timers.pop(at(9000))), (None, Some(0), None));
        assert_eq!((timers.next(), timers.entries()), (None, 0));
    }
}
