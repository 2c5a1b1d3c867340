//! What the paths cost where nobody has measured.

use super::curve::Point;

/// Of kernel 6.1 and 7.2 the pair of which the kernel saves less: bytes of the body, thousands of instructions of the server in user
/// space, and on the kernel path.
///
/// MEASURED: instructions per request, kernel work included, TLS 1.3 AES-256-GCM, as BENCHMARKING.md tells ("Instructions per
/// request, both paths"), kernels 6.1.176 and 7.2.13 under QEMU's TCG, 2026-11-21. The shape alone is theirs: TCG has neither
/// VPCLMULQDQ nor AVX-512, and a processor is not counted in instructions. `sealion calibrate` replaces it.
const INSTRUCTIONS: [(u64, u64, u64); 4] =
    [(1_000, 54, 57), (16_384, 128, 126), (65_536, 431, 376), (1 << 20, 6_492, 4_963)];

/// Instructions a nanosecond.
///
/// MEASURED: 431 thousand instructions and 38 µs for 64 kB, 6.5 million and 551 µs for 1 MB in user space on an AMD EPYC
/// (README, 2026-11-21). A small response has 4; taking the large ones' makes savings small, and moves rare.
const INSTRUCTIONS_PER_NANOSECOND: u64 = 12;

/// What a move costs until this machine has moved some.
///
/// INHERITED: a talk at netdev, 2022, measured 37 µs for TLS_TX without offload. Twice or more of what is seen on today's
/// machines, so that moves start late; the running estimate then finds the truth.
pub(super) const SET_UP_NANOSECONDS: u64 = 37_000;

/// The shipped costs. One table for all AEADs and both versions: the ratio of the paths differs by less than the tables of two
/// kernels do.
pub(super) fn points() -> Vec<Point> {
    let ns = |thousands: u64| thousands * 1000 / INSTRUCTIONS_PER_NANOSECOND;
    let point = |(bytes, user, kernel)| Point { bytes, user_ns: ns(user), kernel_ns: ns(kernel) };
    INSTRUCTIONS.map(point).to_vec()
}
