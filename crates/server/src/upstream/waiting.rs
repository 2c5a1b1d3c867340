//! The memory for contents that wait for a slow side, and the rate at which a client has to send them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{BufferBudget, LimitsConfig, NoRoom, Part, Reservation};

/// The limits of a configuration for contents that wait. All configurations share a budget.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    limits: LimitsConfig,
    budget: Arc<BufferBudget>,
}

impl Waiting {
    pub(super) fn new(limits: &LimitsConfig, budget: &Arc<BufferBudget>) -> Self {
        Waiting { limits: limits.clone(), budget: Arc::clone(budget) }
    }

    /// Bytes that a single content may take.
    pub(super) fn most(&self, client: Option<IpAddr>) -> u64 {
        let of_client = client.and_then(|address| self.limits.buffered_per_address(address));
        of_client.map_or(self.limits.max_buffered.0, |share| share.0.min(self.limits.max_buffered.0))
    }

    /// Bytes that a client has to send in each of these times while its content is collected. `None`: any number.
    pub(super) fn least(&self) -> Option<(u64, Duration)> {
        // As in the other direction: a phone may have no signal for a while.
        let window = self.limits.min_send_rate_window.duration().max(self.limits.request_timeout.duration());
        let octets = u128::from(self.limits.min_receive_rate.get()) * window.as_millis() / 1000;
        (octets > 0).then_some((u64::try_from(octets).unwrap_or(u64::MAX), window))
    }

    /// The memory of one content. `client`: whose share applies, if any.
    pub(super) fn reservation(&self, client: Option<IpAddr>) -> Reservation {
        Reservation::new(&self.budget, client)
    }

    /// Whether `memory` has room for so many bytes more.
    pub(super) fn room(&self, memory: &Reservation, octets: usize) -> Result<(), NoRoom> {
        memory.room(octets, Part::Whole, &self.limits)
    }

    /// Whether `memory` has room for as many bytes more for an optional use.
    pub(super) fn has_spare(&self, memory: &Reservation, octets: usize) -> bool {
        memory.room(octets, Part::Half, &self.limits).is_ok()
    }

    /// Reserves bytes for an optional use. `None`: more than half of the memory is in use.
    pub(crate) fn reserve_spare(&self, client: Option<IpAddr>, octets: usize) -> Option<Reservation> {
        let mut memory = self.reservation(client);
        if !self.has_spare(&memory, octets) {
            return None;
        }
        memory.add(octets);
        Some(memory)
    }
}
