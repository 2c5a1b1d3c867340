//! A measurement: one line of `raw.csv`. A report is made from these lines and `run.json`.

use serde::{Deserialize, Serialize};

/// One measurement of one cell on one arm. Times are ns unless stated otherwise; a value that was not measured is
/// empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The study, e.g. `size-by-calls`.
    pub study: String,
    /// The cell, e.g. `size=65536 calls=10`: equal for all arms and rounds.
    pub cell: String,
    /// The arm's name: `user`, `kernel`, `auto`, `nginx`, `nginx-ktls`, `nic`, or a URL.
    pub arm: String,
    /// Round of the interleaving, from 0.
    pub round: u32,
    /// Start of the measurement, in seconds since 1970.
    pub started: f64,
    /// The reason why it is void; empty if it counts.
    pub void: String,

    /// Body bytes of the requested file.
    pub size: u64,
    /// Requests per connection; empty: unlimited.
    pub calls: Option<u64>,
    /// Connections at a time.
    pub connections: u64,
    /// Threads of the client, each with a share of the connections.
    pub threads: u64,
    /// Requests per second in an open loop; empty: closed loop.
    pub rate: Option<f64>,
    /// Whether sessions were resumed.
    pub resume: bool,
    /// `verify`, `decrypt` or `drain`.
    pub read: String,
    /// Another load on the same server at the same time, as connections × body bytes; empty: none. Its figures are not
    /// in this row.
    #[serde(default)]
    pub beside: String,
    /// Negotiated version and suite.
    pub suite: String,
    /// The version of HTTP that the client speaks; empty: HTTP/1.1 or HTTP/2, by the cell.
    #[serde(default)]
    pub protocol: String,

    /// Wall time of the load, ns.
    pub elapsed: u64,
    /// Time from the first request's start to the last one's start, ns.
    #[serde(default)]
    pub attack: Option<u64>,
    /// Requests whose response was complete and correct.
    pub requests: u64,
    /// Body bytes of those requests.
    pub body_bytes: u64,
    /// Handshakes that succeeded, resumed ones included.
    pub handshakes: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
    /// Connections that failed after the handshake and before their first response.
    #[serde(default)]
    pub unanswered: u64,
    /// Responses with a status other than 200.
    #[serde(default)]
    pub bad_statuses: u64,
    /// Failures of every kind except time-outs.
    pub errors: u64,
    /// Requests over the time limit.
    pub timeouts: u64,
    /// The first failure in words.
    pub first_error: String,
    /// Latency histograms: HDR V2 deflate, base64. From (intended) start to last byte.
    pub latency: String,
    /// Histogram of TCP connects, as `latency`.
    pub connect: String,
    /// Histogram of TLS handshakes, as `latency`.
    pub handshake: String,
    /// Histogram of the times to the first record of the response, as `latency`.
    pub first_byte: String,
    /// Histogram of the times from a request's last byte sent to the response's last byte, as `latency`: without connect
    /// and handshake, as wrk measures it.
    #[serde(default)]
    pub response: String,
    /// Histogram of the client's own delays in an open loop, as `latency`: intended start to last byte sent.
    #[serde(default)]
    pub lag: String,

    /// Run time of the server's threads (schedstat), including kernel work on their behalf.
    pub server_cpu: Option<u64>,
    /// User part by /proc/PID/stat, in its ticks.
    pub server_user: Option<u64>,
    /// System part, in the same ticks.
    pub server_system: Option<u64>,
    /// Voluntary context switches of the server.
    pub server_switches: Option<u64>,
    /// Involuntary context switches of the server.
    pub server_preemptions: Option<u64>,
    /// Proportional set size of the server's processes at the end, bytes.
    pub server_memory: Option<u64>,
    /// Growth of that memory while `connections` were open and idle, each after one request; bytes.
    #[serde(default)]
    pub idle_memory: Option<u64>,
    /// Busy time of each core, including softirq and irq, separated by `;`.
    pub cores_busy: String,
    /// Softirq time of each core.
    pub cores_softirq: String,
    /// Softirq time of the cores outside the server's own, ns: work for connections that no server thread's run time
    /// contains. Over loopback a part of it is the client's.
    #[serde(default)]
    pub softirq_elsewhere: Option<u64>,
    /// Run time of the kernel's own threads (kworker, ksoftirqd), on any core. In a guest that counts instructions,
    /// their instructions.
    #[serde(default)]
    pub kernel_threads: Option<u64>,
    /// CPU of the client's threads.
    pub client_cpu: u64,
    /// Instructions of the server, in an emulated guest where schedstat counts them.
    pub server_instructions: Option<u64>,
    /// Median times of `TCP_ULP`, `TLS_TX` and `TLS_RX` on this machine, separated by `;`, if the arm moves connections
    /// into the kernel.
    pub setup: String,
    /// Median time of a move into the kernel by Sealion's own log, ns, if the arm moves connections into the kernel.
    #[serde(default)]
    pub server_setup: Option<u64>,

    /// Increase of TlsTxSw + TlsTxDevice during the measurement; empty: no kernel TLS here.
    pub tls_tx_opened: Option<u64>,
    /// Increase of TlsTxDevice.
    pub tls_tx_device: Option<u64>,
    /// The server's sockets with a kernel sender (sock_diag), if looked up.
    pub kernel_sockets: Option<u64>,
    /// Whether the body's SHA-256 equalled the file's.
    pub body_verified: bool,
}
