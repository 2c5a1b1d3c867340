#!/usr/bin/env python3
"""Two workers beside nginx with two, and latency at half of nginx's load.

    measure.py --sealion PROGRAM --lab PROGRAM [--nginx PROGRAM] --out DIRECTORY [--rounds 20] [--seconds 2] [two-workers] [half-load]

- `two-workers.csv`: server CPU of 16 kB, 64 connections in a closed loop. Servers and clients share cores 0 and 1.
- `half-load.csv`: latency of 1 kB, 64 connections in an open loop at half the rate that nginx serves in a closed loop. The server
  has core 0, the client core 1. A round whose client was late (99th percentile of its lag above a tenth of the latency's, or
  requests that it did not send) is made again.

Servers run at the same time and are idle in turn; the order is reversed in every second round. It prints the geometric mean of the
ratios of the rounds, Sealion by nginx, and its 95 % interval (Student's t on logarithms). The machine has nothing else to do."""

import argparse, csv, glob, json, math, os, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

NGINX = """daemon off;
user root;
worker_processes {workers};
worker_rlimit_nofile 16384;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  default_type application/octet-stream;
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  open_file_cache max=1000 inactive=60s;
  open_file_cache_valid 60s;
  server {{
    listen 127.0.0.1:{port} ssl http2 backlog=4096;
    ssl_certificate {directory}/cert.pem;
    ssl_certificate_key {directory}/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3;
    root {directory}/www;
  }}
}}
"""


class Server:
    def __init__(self, name, options, directory, cores):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        workers = str(len(cores.split(",")))
        if name == "nginx":
            (directory / "nginx.conf").write_text(NGINX.format(workers=workers, directory=directory, port=self.port))
            command = [options.nginx, "-e", "stderr", "-p", directory, "-c", directory / "nginx.conf"]
        else:
            command = [options.sealion, "serve", directory / "www", "--listen", f"127.0.0.1:{self.port}", "--workers", workers]
            command += ["--cert", directory / "cert.pem", "--key", directory / "key.pem", "--ktls", "never", "--log", "warn"]
            command += ["--access-log", "off"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.name, self.process = name, subprocess.Popen(["taskset", "-c", cores, *command], **quiet)
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        sys.exit(f"{name} does not listen")

    def cpu(self):
        pids = [self.process.pid]
        for children in glob.glob(f"/proc/{self.process.pid}/task/*/children"):
            pids += Path(children).read_text().split()
        tasks = [task for pid in pids for task in glob.glob(f"/proc/{pid}/task/*/schedstat")]
        return sum(int(Path(task).read_text().split()[0]) for task in tasks)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def load(options, server, file, cores, *more):
    command = [options.lab, "load", f"https://127.0.0.1:{server.port}/{file}", "-c", "64", "-t", str(len(cores.split(",")))]
    command += ["-d", f"{options.seconds}s", "--cores", cores, "--read", "drain", "--suite", "aes128", "--json", *more]
    before = server.cpu()
    outcome = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=600).stdout)
    failures = {kind: count for kind, count in outcome["failures"].items() if count and kind != "unsent"}
    if failures:
        sys.exit(f"{server.name}: {failures}: {outcome['first_failure']}")
    return outcome, server.cpu() - before


def report(name, ratios):
    logarithms = [math.log(ratio) for ratio in ratios]
    mean, count = statistics.fmean(logarithms), len(ratios)
    # Student's t from 20 rounds on is within 1 % of 2.09 to 1.96.
    half = (1.96 + 2.5 / (count - 1)) * statistics.stdev(logarithms) / math.sqrt(count)
    low, middle, high = (math.exp(mean + part) for part in (-half, 0, half))
    print(f"{name}: {middle:.3f} × nginx ({low:.3f} to {high:.3f}), {count} rounds from {min(ratios):.3f} to {max(ratios):.3f}")


def rounds(options, servers, name, columns, measure):
    with open(options.out / f"{name}.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["round", "server", *columns])
        for number in range(options.rounds):
            values = {}
            for server in servers[:: 1 if number % 2 == 0 else -1]:
                values[server.name] = measure(server)
                rows.writerow([number, server.name, *values[server.name]])
                file.flush()
            yield values


def two_workers(options, directory):
    servers = [Server(name, options, directory, "0,1") for name in ("sealion", "nginx")]

    def measure(server):
        outcome, cpu = load(options, server, "16k", "0,1")
        return outcome["requests"], cpu

    try:
        for server in servers:
            measure(server)
        each = lambda values, name: values[name][1] / values[name][0]
        made = rounds(options, servers, "two-workers", ["requests", "cpu_ns"], measure)
        report("two workers, 16 kB, CPU", [each(values, "sealion") / each(values, "nginx") for values in made])
    finally:
        for server in servers:
            server.stop()


def half_load(options, directory):
    servers = [Server(name, options, directory, "0") for name in ("sealion", "nginx")]
    again = 0

    def measure(server):
        nonlocal again
        for _ in range(20):
            outcome, cpu = load(options, server, "1k", "1", "--rate", str(rate))
            times = outcome["times"]
            if not outcome["failures"]["unsent"] and times["lag_ns"]["p99"] <= times["latency_ns"]["p99"] / 10:
                return outcome["requests"], cpu, *(times["latency_ns"][part] for part in ("p50", "p90", "p99", "p99.9"))
            again += 1
        sys.exit("the client was late twenty times: the machine is not quiet")

    try:
        outcome, _ = load(options, servers[1], "1k", "1")
        rate = round(outcome["requests_per_second"] / 2)
        for server in servers:
            load(options, server, "1k", "1", "--rate", str(rate))
        made = list(rounds(options, servers, "half-load", ["requests", "cpu_ns", "p50_ns", "p90_ns", "p99_ns", "p99.9_ns"], measure))
        for column, part in enumerate(("p50", "p90", "p99", "p99.9"), 2):
            report(f"half load, {rate}/s, 1 kB, {part}", [v["sealion"][column] / v["nginx"][column] for v in made])
        print(f"{again} rounds were made again, since the client was late")
    finally:
        for server in servers:
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=["two-workers", "half-load"], help="two-workers, half-load")
    for name, default in (("sealion", None), ("lab", None), ("nginx", "/usr/sbin/nginx")):
        parser.add_argument(f"--{name}", default=default, required=default is None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "www").mkdir()
        for file, size in (("1k", 1 << 10), ("16k", 1 << 14)):
            (directory / "www" / file).write_bytes(os.urandom(size))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
             "-keyout", directory / "key.pem", "-out", directory / "cert.pem", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost"],
            check=True, stderr=subprocess.DEVNULL,
        )
        for row in options.rows:
            {"two-workers": two_workers, "half-load": half_load}[row](options, directory)


if __name__ == "__main__":
    main()
