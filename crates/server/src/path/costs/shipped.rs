//! Default costs for machines without a calibration.

use sealion_tls::record::Aead;

use super::curve::Point;

/// Bytes of a response; the sending thread's instructions in user space; its instructions on the kernel path.
type Instructions = [(u64, u64, u64); 10];

// MEASURED: `sealion calibrate` under -icount (BENCHMARKING.md, "Where the kernel wins on a machine"), TLS 1.3, kernels
// 6.1.176 and 7.2.13 under QEMU's TCG, 2026-11-21; at each length, the kernel with the smaller savings. TLS 1.2 is
// within 3 %. Only the shape carries over: TCG has neither VPCLMULQDQ nor AVX-512, and instruction counts are not
// times. On a real processor the other path may win. `sealion calibrate` replaces these numbers; a change to how either
// path sends voids them.

const AES_128_GCM: Instructions = [
    (1 << 10, 16_200, 20_700),
    (4 << 10, 26_500, 26_800),
    (16 << 10, 104_600, 78_100),
    (32 << 10, 193_400, 150_400),
    (64 << 10, 373_300, 293_100),
    (128 << 10, 758_100, 568_000),
    (256 << 10, 1_490_800, 1_102_700),
    (512 << 10, 2_991_000, 2_184_800),
    (1 << 20, 5_962_200, 4_315_800),
    (4 << 20, 23_846_800, 17_290_600),
];

const AES_256_GCM: Instructions = [
    (1 << 10, 16_600, 21_300),
    (4 << 10, 27_800, 29_000),
    (16 << 10, 100_100, 74_300),
    (32 << 10, 203_500, 162_100),
    (64 << 10, 394_200, 318_100),
    (128 << 10, 797_000, 612_400),
    (256 << 10, 1_583_200, 1_201_300),
    (512 << 10, 3_166_000, 2_375_600),
    (1 << 20, 6_323_000, 4_723_500),
    (4 << 20, 25_301_900, 18_848_400),
];

const CHACHA20_POLY1305: Instructions = [
    (1 << 10, 19_500, 30_400),
    (4 << 10, 39_800, 48_200),
    (16 << 10, 148_700, 135_700),
    (32 << 10, 293_900, 269_700),
    (64 << 10, 585_800, 537_500),
    (128 << 10, 1_178_600, 1_052_800),
    (256 << 10, 2_346_500, 2_104_600),
    (512 << 10, 4_690_900, 4_196_300),
    (1 << 20, 9_383_200, 8_396_700),
    (4 << 20, 37_537_800, 33_594_300),
];

/// Converts instruction counts to time.
///
/// MEASURED: `sealion calibrate` took 36 µs for 64 KiB, 467 µs for 1 MiB and 1877 µs for 4 MiB in user space with
/// AES-128-GCM on an AMD EPYC, Linux 6.18, 2026-11-21, hence 10 to 13. For a response of 1 KiB it is 2. The value for
/// long responses is the conservative choice, because it makes savings smaller and moves later.
const INSTRUCTIONS_PER_NANOSECOND: u64 = 12;

/// The cost of a move until this machine has measured its own moves.
///
/// INHERITED: a talk at netdev, 2022, measured 37 µs for TLS_TX without offload. By count, it is 10,000 to 18,000
/// instructions, or a few microseconds. So the first moves come late, and the running estimate then corrects the cost.
pub(super) const SET_UP_NANOSECONDS: u64 = 37_000;

/// The default costs of an AEAD, for both versions.
pub(super) fn points(aead: Aead) -> Vec<Point> {
    let table = match aead {
        Aead::Aes128Gcm => AES_128_GCM,
        Aead::Aes256Gcm => AES_256_GCM,
        Aead::Chacha20Poly1305 => CHACHA20_POLY1305,
    };
    let ns = |instructions: u64| instructions / INSTRUCTIONS_PER_NANOSECOND;
    let point = |(bytes, user, kernel)| Point { bytes, user_ns: ns(user), kernel_ns: ns(kernel) };
    table.map(point).to_vec()
}
