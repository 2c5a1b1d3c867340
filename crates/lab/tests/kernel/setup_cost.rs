//! Set-up on a kernel with kernel TLS.

use sealion_ktls::stat::TlsStat;
use sealion_ktls::{Cipher, Version};
use sealion_lab::setup_cost::{SetUpCost, measure};

/// The timed handovers are real: the kernel's own counters rise by one for each connection and direction.
#[test]
fn each_connection_is_given_to_the_kernel_and_timed() {
    // The first use loads the module that counts.
    let first = measure(Version::Tls13, Cipher::Aes128Gcm, 1).expect("measure");
    assert!(matches!(first, SetUpCost::Measured(_)), "{first:?}");
    for version in Version::ALL {
        for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305] {
            let before = TlsStat::read().expect("statistics");
            let cost = measure(version, cipher, 20).expect("measure");
            let after = TlsStat::read().expect("statistics");
            let SetUpCost::Measured(times) = cost else { panic!("{version} {cipher}: {cost:?}") };
            assert_eq!([times.ulp.len(), times.tx.len(), times.rx.len()], [20; 3]);
            let rise = |name| after.get(name).expect("a counter") - before.get(name).expect("a counter");
            assert_eq!([rise("TlsTxSw"), rise("TlsRxSw")], [20; 2], "{version} {cipher}");
        }
    }
}
