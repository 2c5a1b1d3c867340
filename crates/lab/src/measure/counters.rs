//! The kernel's counters of sockets whose records it seals, over all processes.

use sealion_ktls::stat::TlsStat;

/// Their values at one moment; `None` while the kernel has no TLS module.
pub(crate) struct Counters(Option<TlsStat>);

impl Counters {
    pub(crate) fn now() -> Self {
        Self(TlsStat::read().ok())
    }

    /// The increases of TlsTxSw + TlsTxDevice, and of TlsTxDevice, since then.
    pub(crate) fn since(&self) -> (Option<u64>, Option<u64>) {
        let Ok(now) = TlsStat::read() else { return (None, None) };
        // Without the module, the counters count as 0.
        let before = |get: fn(&TlsStat) -> Option<u64>| self.0.as_ref().and_then(get).unwrap_or(0);
        let rise = |get: fn(&TlsStat) -> Option<u64>| get(&now).map(|now| now.saturating_sub(before(get)));
        let device = rise(TlsStat::tx_device);
        (rise(TlsStat::tx_sw).map(|sw| sw + device.unwrap_or(0)), device)
    }
}
