//! Default costs for machines without a calibration.

use sealion_tls::record::Aead;

use super::curve::Point;
use super::sealing::Sealing;

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

// MEASURED: the same with `--without aes,vaes`, TLS 1.3, kernel 7.2.13, 2026-11-27. Kernel 6.1 takes 1.44 to 1.6 times the instructions of user space.
// CHACHA20-POLY1305 is within 2 % of the table above.

const AES_128_GCM_WITHOUT_INSTRUCTIONS: Instructions = [
    (1 << 10, 47_700, 85_600),
    (4 << 10, 131_500, 275_300),
    (16 << 10, 513_300, 1_037_300),
    (32 << 10, 1_010_600, 2_117_200),
    (64 << 10, 2_006_700, 4_232_800),
    (128 << 10, 3_997_800, 8_467_700),
    (256 << 10, 8_018_300, 16_768_500),
    (512 << 10, 16_029_900, 33_508_700),
    (1 << 20, 32_017_400, 67_003_500),
    (4 << 20, 128_114_800, 268_169_500),
];

const AES_256_GCM_WITHOUT_INSTRUCTIONS: Instructions = [
    (1 << 10, 55_700, 106_100),
    (4 << 10, 173_800, 356_200),
    (16 << 10, 661_500, 1_357_300),
    (32 << 10, 1_343_800, 2_757_800),
    (64 << 10, 2_681_800, 5_516_500),
    (128 << 10, 5_345_300, 11_034_600),
    (256 << 10, 10_713_700, 21_898_200),
    (512 << 10, 21_432_200, 43_772_200),
    (1 << 20, 42_810_700, 87_515_000),
    (4 << 20, 171_244_700, 350_234_400),
];

/// The time of the kernel path in per cent of user space, where user space alone has wide AES instructions.
///
/// MEASURED: on an AMD EPYC (Zen 4), user space took 0.37 s for 1 GB, sealing included, and sendfile without TLS 0.20 to 0.24 s (2026-11-21). Sealing by
/// narrow instructions takes another 0.21 s (`openssl speed` without VAES, 2026-11-27). So the kernel path takes 0.41 s at least.
const KERNEL_PERCENT_BEHIND_WIDE: u64 = 111;

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
pub(super) fn points(aead: Aead, sealing: Sealing) -> Vec<Point> {
    let table = match (aead, sealing) {
        (Aead::Chacha20Poly1305, _) => CHACHA20_POLY1305,
        (Aead::Aes128Gcm, Sealing::Alike) => AES_128_GCM,
        (Aead::Aes256Gcm, Sealing::Alike) => AES_256_GCM,
        (Aead::Aes128Gcm, Sealing::WithoutInstructions) => AES_128_GCM_WITHOUT_INSTRUCTIONS,
        (Aead::Aes256Gcm, Sealing::WithoutInstructions) => AES_256_GCM_WITHOUT_INSTRUCTIONS,
        (Aead::Aes128Gcm, Sealing::WiderInUserSpace) => behind_wide(AES_128_GCM),
        (Aead::Aes256Gcm, Sealing::WiderInUserSpace) => behind_wide(AES_256_GCM),
    };
    let ns = |instructions: u64| instructions / INSTRUCTIONS_PER_NANOSECOND;
    let point = |(bytes, user, kernel)| Point { bytes, user_ns: ns(user), kernel_ns: ns(kernel) };
    table.map(point).to_vec()
}

fn behind_wide(table: Instructions) -> Instructions {
    table.map(|(bytes, user, kernel)| (bytes, user, kernel.max(user * KERNEL_PERCENT_BEHIND_WIDE / 100)))
}
