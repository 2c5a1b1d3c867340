//! Kernel TLS counters from `/proc/net/tls_stat`, and whether the environment guarantees kernel TLS.

use sealion_ktls::stat::TlsStat;

/// The kernel series of the guest that runs the test, such as `6.1`; `None` outside a guest.
pub fn guest_series() -> Option<String> {
    std::env::var("SEALION_KERNEL").ok()
}

/// Whether kernel TLS is guaranteed here, so that its absence is a failure and not a reason to skip.
pub fn required() -> bool {
    std::env::var("SEALION_TEST_KTLS").is_ok_and(|value| value == "required")
}

/// The counters at one moment. They cover the whole network namespace: compare them only in tests that run one at a
/// time.
pub struct Counters(TlsStat);

impl Counters {
    /// Reads the counters.
    ///
    /// # Panics
    /// The TLS module is not loaded.
    #[track_caller]
    pub fn now() -> Self {
        match TlsStat::read() {
            Ok(stat) => Self(stat),
            Err(error) => panic!("no counters of kernel TLS: {error}"),
        }
    }

    /// The number of sockets opened since then for sending with the kernel's own ciphers.
    #[track_caller]
    pub fn tx_sw_since(&self) -> i64 {
        self.since("TlsTxSw")
    }

    /// The number of sending keys renewed since then.
    #[track_caller]
    pub fn tx_rekeys_since(&self) -> i64 {
        self.since("TlsTxRekeyOk")
    }

    /// The change of a counter by the kernel's name; 0 if this kernel lacks it.
    #[track_caller]
    pub fn since(&self, name: &str) -> i64 {
        let now = Self::now().0;
        now.delta(&self.0).into_iter().find(|&(n, _)| n == name).map_or(0, |(_, change)| change)
    }
}

/// Runs `body` and asserts that the kernel took over the sending side of exactly `expected` sockets.
///
/// # Panics
/// The number differs.
#[track_caller]
pub fn expect_tx_sw_delta<T>(expected: i64, body: impl FnOnce() -> T) -> T {
    let before = Counters::now();
    let result = body();
    assert_eq!(before.tx_sw_since(), expected, "sockets whose sending side moved into the kernel");
    result
}
