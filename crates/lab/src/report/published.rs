//! Published figures, shown beside measured ones. They come from other machines: compare ratios, not absolute figures.

/// A study as published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// The lab's name of the study.
    pub study: &'static str,
    /// Title, author or place, and year.
    pub citation: &'static str,
    /// Method and machine of the measurement.
    pub method: &'static str,
    /// The result, in one line.
    pub result: &'static str,
    /// Differences here that explain other figures.
    pub apart: &'static str,
}

/// The source of the study with that name, if it was published.
pub(crate) fn source(study: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.study == study)
}

const SOURCES: [Source; 4] = [
    Source {
        study: "nginx-article",
        citation: "“Improving NGINX Performance with Kernel TLS and SSL_sendfile( )”, NGINX blog, 2021",
        method: "curl fetches a file of 1 GB from the page cache, one connection, TLS 1.3, AES-256-GCM, N = 10, ministat",
        result: "throughput with kernel TLS, computed from its rows of N, average and standard deviation (it prints no \
                 error): Ubuntu 21.10 +13.4 %, FreeBSD 13.0 +27.6 %. It calls Ubuntu's gain in the minimum 16 %; by its rows \
                 that is 17.0 %",
        apart: "curl ran on the server's machine, as the lab's client does, but not on a core of its own. The guests' \
                processor has AES and VAES and neither VPCLMULQDQ nor AVX-512, and each instruction counts as one.",
    },
    Source {
        study: "size-by-calls",
        citation: "“OpenSSL SSL_sendfile performance with nginx on Linux”, tinselcity.github.io, 2023",
        method: "nginx 1.23 with tcp_nopush on a Xeon Gold 6230R, over loopback, hurl with 4 threads and 4 connections, \
                 10 s each. hurl decrypts its input. The lab's client counts records and does not decrypt, so the server is \
                 the limit, and gains here are the server's",
        result: "“~60-70 %” better throughput above 1 MB, 1 to 8 kB a little worse; its plots show +41 to +59 % from 10 \
                 calls on at 1 MB and above",
        apart: "the source's client decrypted and shared the machine, so that a part of its time does not depend on the \
                server's path. nginx writes one record a system call in user space; Sealion writes up to 33, which leaves less \
                to gain.",
    },
    Source {
        study: "netdev",
        citation: "kTLS offload talk, netdev 0x16, 2022",
        method: "nginx with user-space TLS, kernel TLS and NIC offload, TLS 1.2 with AES-128-GCM; wrk, 2 connections, 1k to \
                 1G, 3 × 25 s, K requests per connection; over a network card",
        result: "user space best for short flows; kernel TLS from 128k on, offload from 64k on",
        apart: "the talk's traffic went over a network card; over loopback there is no card's work. Its threshold is one of ROI. \
                The lab's native runs show ROI and the cost of a request; its guests show the latter alone.",
    },
    Source {
        study: "container",
        citation: "container test with vegeta, 2023",
        method: "closed loop, 500 workers on 10M and 1M, 1500 on 512k, 30 s; vegeta reads whole bodies over connections that \
                 stay open, and keeps 10,240 bytes of each",
        result: "throughput +35 / +64 / +50 %, mean latency −22 / −42 / −32 % at 10M / 1M / 512k, with the client in a container \
                 on the same machine. Its text says 63 for 1M, and its rows give 63.8. From another computer, and under limits on \
                 processors, memory and bandwidth, it found no difference: 0 to +2 %",
        apart: "the lab pins each server to one core, and its client shares the machine, as in the first of the source's \
                settings. `sealion-lab agent` on another machine repeats the second. The third is repeated with limits of \
                the lab's choice: half a processor and 512 MiB (arms named -limited), or options of the run. Arms named \
                -vegeta have the source's client. With half a processor, work is the limit, so throughput gains what kernel TLS \
                saves. No limit of the bandwidth is recorded. By the source's own figures, \
                81 × 10 MB, 825 × 1 MB and 1,484 × 0.5 MB a second are all 740 to 825 MB/s: bytes were the limit there. Runs in \
                guests have a tenth of the workers.",
    },
];

/// A gain computed from the NGINX article's rows. As pictures, the article shows N = 10, minimum, maximum, median,
/// average and standard deviation of four runs, without errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArticleGain {
    pub system: &'static str,
    /// Gain of throughput, percent.
    pub percent: f64,
    /// Half the 95 % interval with a pooled deviation, as ministat computes it.
    pub student: f64,
    /// The same by Welch's method.
    pub welch: f64,
}

/// NGINX article.
pub(crate) const NGINX_ARTICLE: [ArticleGain; 2] = [
    ArticleGain { system: "Ubuntu 21.10", percent: 13.4, student: 7.1, welch: 7.1 },
    ArticleGain { system: "FreeBSD 13.0", percent: 27.6, student: 3.7, welch: 3.9 },
];

/// Container test: size, gain of throughput and change of mean latency with kernel TLS, in percent.
pub(crate) const CONTAINER: [(u64, f64, f64); 3] =
    [(10 << 20, 35.0, -22.0), (1 << 20, 63.8, -42.0), (512 << 10, 50.0, -32.0)];

/// Container test: its gain of throughput with the client on another computer, and under limits on resources.
pub(crate) const CONTAINER_ELSEWHERE: &str = "±0 to +2 %: no difference";

/// The bytes of each body that vegeta kept in the container test (`-max-body`); it read and dropped the rest.
pub(crate) const CONTAINER_KEPT: u64 = 10_240;

/// The cost of the handover's system calls in the netdev talk, ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetUp {
    pub path: &'static str,
    pub tx: f64,
    pub rx: f64,
}

/// netdev talk, without and with NIC offload.
pub(crate) const NETDEV_SETUP: [SetUp; 2] =
    [SetUp { path: "kernel TLS", tx: 0.010, rx: 0.037 }, SetUp { path: "NIC offload", tx: 1.207, rx: 3.857 }];

/// netdev talk: the CPU that offload to the card saves. The talk gives no such figure for the kernel's own ciphers.
pub(crate) const NETDEV_CPU: &str = "35 % less CPU with NIC offload; none is given for software kernel TLS";

/// Calls per connection, requests per second without and with kernel TLS.
type AtCalls = (u64, f64, f64);

/// Size by calls: for each size, calls per connection with requests per second without and with kernel TLS. Read to
/// three digits from the lines' coordinates in the article's plots.
pub(crate) const SIZE_BY_CALLS: [(u64, &[AtCalls]); 7] = [
    (
        1024,
        &[
            (1, 1060.0, 1070.0),
            (10, 8940.0, 8400.0),
            (20, 15100.0, 13900.0),
            (50, 26000.0, 22600.0),
            (100, 34000.0, 29300.0),
            (500, 46200.0, 38000.0),
            (2000, 50300.0, 41000.0),
        ],
    ),
    (
        8192,
        &[
            (1, 1090.0, 1080.0),
            (10, 8610.0, 8160.0),
            (20, 14300.0, 13000.0),
            (50, 23800.0, 20500.0),
            (100, 30300.0, 26700.0),
            (500, 39700.0, 33400.0),
            (2000, 43100.0, 35200.0),
        ],
    ),
    (
        65536,
        &[
            (1, 1040.0, 1040.0),
            (10, 6150.0, 6490.0),
            (20, 8670.0, 9300.0),
            (50, 11500.0, 12500.0),
            (100, 12500.0, 14200.0),
            (500, 14400.0, 15900.0),
            (2000, 14800.0, 16400.0),
        ],
    ),
    (
        131072,
        &[
            (1, 984.0, 997.0),
            (10, 4740.0, 5210.0),
            (20, 6060.0, 6980.0),
            (50, 7310.0, 8590.0),
            (100, 7850.0, 9480.0),
            (500, 8430.0, 10300.0),
            (2000, 8570.0, 10500.0),
        ],
    ),
    (
        1048576,
        &[
            (1, 609.0, 687.0),
            (10, 1100.0, 1550.0),
            (20, 1150.0, 1670.0),
            (50, 1190.0, 1760.0),
            (100, 1200.0, 1780.0),
            (500, 1200.0, 1800.0),
            (2000, 1210.0, 1800.0),
        ],
    ),
    (
        8388608,
        &[
            (1, 136.0, 197.0),
            (10, 159.0, 238.0),
            (20, 162.0, 241.0),
            (50, 158.0, 243.0),
            (100, 156.0, 245.0),
            (500, 155.0, 246.0),
            (2000, 156.0, 245.0),
        ],
    ),
    (
        67108864,
        &[
            (1, 18.3, 27.2),
            (10, 18.6, 28.8),
            (20, 18.4, 29.2),
            (50, 18.2, 28.8),
            (100, 18.4, 28.8),
            (500, 18.8, 28.8),
            (2000, 18.1, 28.8),
        ],
    ),
];

/// The gain of requests per second with kernel TLS in the size-by-calls study, as a ratio. `None` for a number of calls
/// that it did not measure, and for unlimited calls.
pub(crate) fn size_by_calls_ratio(size: u64, calls: u64) -> Option<f64> {
    let (_, line) = SIZE_BY_CALLS.iter().find(|(published, _)| *published == size)?;
    let (_, user, kernel) = line.iter().find(|(published, ..)| *published == calls)?;
    Some(kernel / user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_agree_with_the_articles_words() {
        // "with smaller files (1-8kB) is a little worse"
        assert!(size_by_calls_ratio(1024, 100).unwrap() < 1.0);
        assert!(size_by_calls_ratio(8192, 10).unwrap() < 1.0);
        // The article's example of hurl's output: 8202 per second for 8 kB and 10 calls with kernel TLS.
        let (_, line) = SIZE_BY_CALLS[1];
        assert!((line[1].2 / 8202.0 - 1.0).abs() < 0.01);
        for size in [1 << 20, 8 << 20, 64 << 20] {
            assert!((1.4..1.75).contains(&size_by_calls_ratio(size, 100).unwrap()));
        }
        assert_eq!(size_by_calls_ratio(1024, 3), None);
    }
}
