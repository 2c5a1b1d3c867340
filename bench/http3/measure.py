#!/usr/bin/env python3
"""Server CPU per request over HTTP/3, Sealion beside nginx with HTTP/3, on loopback.

measure.py SEALION SEALION-LAB NGINX DIRECTORY ROUNDS > raw.csv

SEALION serves DIRECTORY/sealion.toml at port 9443, and NGINX DIRECTORY/nginx.conf at port 8443, with the same files. Both have one worker on core 0; the
client is one thread on core 1. The servers take turns within a round. CPU is the growth of the first field of /proc/PID/task/*/schedstat.
`measure.py report raw.csv` prints the table.
"""
import csv
import glob
import json
import statistics
import subprocess
import sys
import time

CELLS = [("1k", 1), ("1k", 16), ("16k", 1), ("64k", 1), ("1m", 1), ("16m", 1)]
SECONDS = 3


def cpu(pid):
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as file:
            total += int(file.read().split()[0])
    return total


def load(lab, port, size, streams, seconds):
    command = [lab, "load", f"https://localhost:{port}/{size}", "--h3", str(streams), "-c", "32", "-d", f"{seconds}s", "--cores", "1", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


def main(sealion, lab, nginx, directory, rounds):
    servers = {
        "sealion": (9443, ["taskset", "-c", "0", sealion, "serve", "--config", f"{directory}/sealion.toml"]),
        "nginx": (8443, ["taskset", "-c", "0", nginx, "-p", directory, "-c", f"{directory}/nginx.conf"]),
    }
    running = {name: subprocess.Popen(command) for name, (_, command) in servers.items()}
    time.sleep(2)
    out = csv.writer(sys.stdout)
    out.writerow(["round", "size", "streams", "server", "requests", "failed", "cpu_ns"])
    try:
        for size, streams in CELLS:
            for name, (port, _) in servers.items():
                load(lab, port, size, streams, 1)
            for turn in range(rounds):
                for name, (port, _) in servers.items():
                    before = cpu(running[name].pid)
                    result = load(lab, port, size, streams, SECONDS)
                    used = cpu(running[name].pid) - before
                    out.writerow([turn, size, streams, name, result["requests"], sum(result["failures"].values()), used])
                    sys.stdout.flush()
    finally:
        for process in running.values():
            process.terminate()
            process.wait(timeout=20)


def report(path):
    cost = {}
    with open(path) as file:
        for row in csv.DictReader(file):
            key = (row["size"], row["streams"])
            cost.setdefault(key, {}).setdefault(row["server"], []).append(int(row["cpu_ns"]) / int(row["requests"]) / 1000)
    print("| | nginx, µs | Sealion, µs | Sealion / nginx, median (least to most) |\n|---|---:|---:|---:|")
    for (size, streams), servers in cost.items():
        ratios = [own / other for own, other in zip(servers["sealion"], servers["nginx"])]
        nginx, sealion = (statistics.median(servers[name]) for name in ("nginx", "sealion"))
        print(f"| {size} × {streams} | {nginx:.1f} | {sealion:.1f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    if sys.argv[1] == "report":
        report(sys.argv[2])
    else:
        main(*sys.argv[1:5], int(sys.argv[5]))
