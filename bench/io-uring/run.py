#!/usr/bin/env python3
"""Measures floor.c: CPU of a responder and of a relay per request, epoll and io_uring in turn.

    run.py PROGRAM ROUNDS SECONDS OUT.csv [STEPS...]
"""
import csv, subprocess, sys, time

program, rounds, seconds, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
works = sys.argv[5:] or ["0"]
PORT, UPSTREAM = 28080, 28081


def start(core, *arguments):
    server = subprocess.Popen(["nice", "-n", "-19", "taskset", "-c", core, program, *arguments], stderr=subprocess.PIPE, text=True)
    for _ in range(200):
        if any(f":{int(arguments[2]):04X} " in line and " 0A " in line for line in open("/proc/net/tcp")):
            return server
        time.sleep(0.01)
    sys.exit("no listener")


with open(out, "w") as file:
    rows = csv.writer(file)
    rows.writerow(["kind", "way", "steps", "round", "requests", "cpu_ns", "server_rounds", "p50_ns", "p99_ns", "client_waits"])
    for turn in range(rounds):
        for work in works:
            for kind in ("serve", "relay"):
                ways = ("epoll", "epoll-later", "uring")[:: 1 if turn % 2 == 0 else -1]
                for way in ways:
                    upstream = start("1", "serve", "epoll", str(UPSTREAM), "0") if kind == "relay" else None
                    server = start("0", kind, way, str(PORT), str(UPSTREAM), work)
                    client = subprocess.run(["nice", "-n", "-19", "taskset", "-c", "1", program, "client", str(PORT), "64", seconds],
                                            stdout=subprocess.PIPE, text=True, timeout=60, check=True)
                    # The server prints its own run time when its clients leave.
                    text = server.communicate(timeout=10)[1].split()
                    if upstream:
                        upstream.communicate(timeout=10)
                    _, p50, p99, waits = client.stdout.split()
                    rows.writerow([kind, way, work, turn, text[0], text[2], text[1], p50, p99, waits])
                    file.flush()
