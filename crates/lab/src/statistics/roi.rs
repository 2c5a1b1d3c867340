//! Return on investment.

/// Exponent of the throughput in [`roi`]. INHERITED from the netdev talk of 2022, which uses 2 so that a faster server
/// is worth more than a more economical one.
const ROI_EXPONENT: f64 = 2.0;

/// Return on investment, T^n / Σ C_i: `throughput` (GB/s, or thousands of requests a second) to the power
/// [`ROI_EXPONENT`], over the CPU it took, in cores (`cpu` ns in `elapsed` ns). Higher is better; only its ratios mean
/// something.
///
/// The talk sums application and I/O over all cores of a server that has a machine for itself. Here the sum is over the
/// server's threads, the kernel's threads, and softirqs on cores other than the server's. If client and server share a
/// machine, softirqs on the client's core count too.
pub(crate) fn roi(throughput: f64, cpu: u64, elapsed: u64) -> Option<f64> {
    let cores = cpu as f64 / elapsed as f64;
    (cores.is_finite() && cores > 0.0).then(|| throughput.powf(ROI_EXPONENT) / cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_squared_over_cores() {
        assert_eq!(roi(3.0, 500, 1_000), Some(18.0));
        assert_eq!(roi(3.0, 2_000, 1_000), Some(4.5));
        assert_eq!(roi(3.0, 0, 1_000), None);
        assert_eq!(roi(3.0, 0, 0), None);
    }
}
