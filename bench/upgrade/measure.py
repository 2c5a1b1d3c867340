#!/usr/bin/env python3
"""What an upgrade costs clients with live TLS connections.

    bench/upgrade/measure.py --sealion target/release/sealion --out bench/upgrade [--connections 9000] [--upgrades 60]

- `pause.csv`: the longest of all requests that one connection makes without a break during one upgrade and 300 requests after it, one row for each upgrade.
- `many.csv`: idle connections, the time from the order to the end of the old process, and both processes' resident memory.
- `messages.csv`: the bytes of each message that passes an idle connection, by strace.

One worker, TLS 1.3, 1 kB files, access log off, client and server on this machine. It needs strace and, for real-time priority, root (`chrt -f 10`)."""

import argparse, csv, json, os, platform, re, resource, signal, socket, ssl, subprocess, tempfile, time
from pathlib import Path

REQUEST = b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n"


def context(protocol):
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols([protocol])
    return made


CONTEXTS = {protocol: context(protocol) for protocol in ("http/1.1", "h2")}


class Server:
    def __init__(self, program, root, *more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.program = program
        command = [program, "serve", root, "--listen", f"127.0.0.1:{self.port}", "--workers", "1", "--access-log", "off", *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        for line in self.process.stderr:
            if "serving" in line:
                break

    def connect(self, protocol="http/1.1"):
        stream = CONTEXTS[protocol].wrap_socket(socket.create_connection(("127.0.0.1", self.port)), server_hostname="localhost")
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def order(self):
        return subprocess.Popen([self.program, "upgrade", "--pid", str(self.pid)], stdout=subprocess.PIPE, text=True)

    def taken_over(self, order):
        self.pid = int(re.search(r"process (\d+)", order.stdout.read())[1])

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)


def get(stream):
    began = time.perf_counter()
    stream.sendall(REQUEST)
    came = b""
    while len(came) < 1000:
        came += stream.recv(65536)
    return time.perf_counter() - began


def get_by_http2(stream):
    stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    stream.recv(65536)
    block = b"\x82\x87\x04\x02/f\x41\x09localhost"
    stream.sendall(bytes([0, 0, 0, 4, 1, 0, 0, 0, 0]) + len(block).to_bytes(3, "big") + bytes([1, 5, 0, 0, 0, 1]) + block)
    came = b""
    while len(came) < 1000:
        came += stream.recv(65536)


def pause(program, root, upgrades):
    server = Server(program, root)
    stream = server.connect()
    before = sorted(get(stream) for _ in range(2000))
    rows = []
    for _ in range(upgrades):
        order, longest = server.order(), 0
        while order.poll() is None:
            longest = max(longest, get(stream))
        longest = max(longest, *(get(stream) for _ in range(300)))
        rows.append([round(longest * 1e3, 4)])
        server.taken_over(order)
    server.stop()
    return rows, {"request_before_ms": {"p50": before[1000] * 1e3, "p99": before[1980] * 1e3, "max": before[-1] * 1e3}}


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def many(program, root, connections):
    server = Server(program, root, "--max-connections", str(connections + 200))
    streams = [server.connect() for _ in range(connections)]
    for stream in streams:
        get(stream)
    old = resident(server.pid)
    began = time.perf_counter()
    order = server.order()
    order.wait()
    server.process.wait()
    took = time.perf_counter() - began
    server.taken_over(order)
    new = resident(server.pid)
    for stream in streams:
        get(stream)
    server.stop()
    return [connections, round(took * 1e3, 2), old, new]


def messages(program, root, protocol, ask):
    server = Server(program, root)
    kept = [server.connect(protocol) for _ in range(3)]
    for stream in kept:
        ask(stream)
    with tempfile.NamedTemporaryFile("r") as trace:
        strace = subprocess.Popen(["strace", "-f", "-qq", "-o", trace.name, "-e", "trace=sendmsg", "-p", str(server.pid)])
        time.sleep(1)
        order = server.order()
        order.wait()
        server.process.wait()
        strace.send_signal(signal.SIGINT)
        strace.wait()
        lengths = re.findall(r"msg_iovlen=3.*SCM_RIGHTS.*= (\d+)", trace.read())
    server.taken_over(order)
    server.stop()
    return [[protocol, length] for length in lengths]


def write(path, head, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sealion", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--connections", type=int, default=9000)
    parser.add_argument("--upgrades", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "f").write_bytes(bytes(1000))
        load = os.getloadavg()
        rows, conditions = pause(arguments.sealion, root, arguments.upgrades)
        write(arguments.out / "pause.csv", ["longest_ms"], rows)
        write(arguments.out / "messages.csv", ["protocol", "bytes"], messages(arguments.sealion, root, "http/1.1", get) + messages(arguments.sealion, root, "h2", get_by_http2))
        rounds = [many(arguments.sealion, root, arguments.connections) for _ in range(arguments.rounds)]
        write(arguments.out / "many.csv", ["connections", "to_the_end_of_the_old_process_ms", "old_kb", "new_kb"], rounds)
    version = subprocess.run([arguments.sealion, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    policy = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo"}.get(os.sched_getscheduler(0), "?")
    conditions |= {"date": time.strftime("%Y-%m-%d"), "version": version, "kernel": platform.release(), "processors": os.cpu_count(), "load_at_start": load, "scheduling": policy}
    (arguments.out / "conditions.json").write_text(json.dumps(conditions, indent=1) + "\n")


main()
