#!/usr/bin/env python3
"""Recomputes published figures from the raw data, with nothing but Python's standard library and no code of the lab.

Usage: recompute.py ROOT. Prints the number of figures that agree; exit code 1 if one does not, or if there are too few.
"""

import base64
import csv
import math
import re
import struct
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from statistics import median

csv.field_size_limit(1 << 30)
LEAST = 50
NOT_MEASURED = "not measured on this machine"
figures, wrong = 0, []


def rows(path):
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file) if not row["void"]]


def check(name, text, value):
    """`text` begins with a number; `value` must be that number to its last digit."""
    global figures
    found = re.match(r"[+−±-]?([0-9]+(?:\.([0-9]+))?)\s*(ns|µs|ms|s|kB|MB|GB|k|M|%)?", text.strip())
    if not found:
        wrong.append(f"{name}: no number in {text!r}")
        return
    shown = float(found[1]) * (-1 if text.strip()[0] in "−-" else 1)
    unit = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "kB": 1e3, "MB": 1e6, "GB": 1e9, "k": 1e3, "M": 1e6, "%": 1, None: 1}
    step = 0.5 * 10 ** -len(found[2] or "")
    figures += 1
    if abs(shown - value / unit[found[3]]) > step * 1.0001:
        wrong.append(f"{name}: {text.strip()!r} is shown, {value / unit[found[3]]:.6g} is recomputed")


# Student's t by the regularised incomplete beta function (continued fraction, Lentz).
def beta(a, b, x):
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x))
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, 1 - x)
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    h = d
    for m in range(1, 1000):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + part * d) or tiny)
            c = (1 + part / c) or tiny
            h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * h / a


def two_sided(t, freedom):
    return beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def t_quantile(freedom):
    low, high = 1e-9, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 0.05 else (low, middle)
    return low


def logarithms(values):
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return mean, sum((log - mean) ** 2 for log in logs) / (len(logs) - 1) if len(logs) > 1 else 0.0, len(logs)


def welch(base, sample):
    """The ratio of geometric means with its 95 % interval."""
    (one, a, n), (other, b, m) = logarithms(sample), logarithms(base)
    a, b = a / n, b / m
    freedom = (a + b) ** 2 / (a * a / (n - 1) + b * b / (m - 1))
    error = t_quantile(freedom) * math.sqrt(a + b)
    return [math.exp(one - other + part) for part in (0, -error, error)]


def interval(values):
    mean, variance, n = logarithms(values)
    error = t_quantile(n - 1) * math.sqrt(variance / n)
    return [math.exp(mean + part) for part in (0, -error, error)]


def percentile(text, quantile):
    """Of an HDR histogram, V2 deflate, base64."""
    outer = base64.b64decode(text)
    (size,) = struct.unpack(">I", outer[4:8])
    inner = zlib.decompress(outer[8 : 8 + size])
    length, _, digits = struct.unpack(">iii", inner[4:16])
    assert digits == 3
    counts, index, at, end = {}, 0, 40, 40 + length
    while at < end:
        value = shift = 0
        for number in range(9):
            byte = inner[at]
            at += 1
            if number == 8:
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        value = (value >> 1) ^ -(value & 1)
        if value < 0:
            index -= value
        else:
            counts[index] = value
            index += 1
    wanted = max(1, math.ceil(quantile * sum(counts.values())))
    for index in sorted(counts):
        wanted -= counts[index]
        if wanted <= 0:
            bucket = max(0, (index >> 10) - 1)
            within = (index & 1023) + (1024 if index >= 1024 else 0)
            return (within << bucket) + (1 << bucket) - 1
    raise ValueError("an empty histogram")


def table(text, start):
    """The rows of the first table after `start`, as lists of cells; the first is the head."""
    found = []
    for line in text[text.index(start) + len(start) :].splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not set(cells[0] + cells[-1]) <= set("-: "):
                found.append(cells)
            elif not any(cells) or cells[-1] == "":
                found.append(cells)
        elif found:
            break
    return found


def cost(row):
    column = "server_instructions" if row["server_instructions"] else "server_cpu"
    return float(row[column]) / float(row["requests"])


def readme(root):
    text = (root / "README.md").read_text()
    raw = rows(root / "bench/peers/raw.csv")

    def of(arm, size, calls="", rate=False, resume="false", beside=False, idle=False):
        return [
            row
            for row in raw
            if row["arm"] == arm
            and (row["size"], row["calls"], row["resume"]) == (str(size), calls, resume)
            and (bool(row["rate"]), bool(row["beside"]), bool(row["idle_memory"])) == (rate, beside, idle)
        ]

    cells = {
        "1 kB": dict(size=1024),
        "16 kB": dict(size=16384),
        "64 kB": dict(size=65536),
        "128 kB": dict(size=131072),
        "1 MB": dict(size=1048576),
        "1 kB, each with a full handshake": dict(size=1024, calls="1"),
        "1 kB, each with a resumed handshake": dict(size=1024, calls="1", resume="true"),
        "1 kB, half the load": dict(size=1024, rate=True),
        "16 kB, half the load": dict(size=16384, rate=True),
    }
    lines = {line[0]: line for line in table(text, "<!-- peers: bench/peers -->")}
    for name, cell in cells.items():
        measured = {arm: of(arm, **cell) for arm in ("nginx", "user")}
        # Rounds whose client was late are void, and a table shows no figure of fewer than five.
        least = 5 if cell.get("rate") else 1
        costs = [median(map(cost, found)) if len(found) >= least else None for found in measured.values()]
        for column, value in ((1, costs[0]), (2, costs[1]), (3, None not in costs and costs[1] / costs[0])):
            if value:
                check(f"README, {name}, column {column}", lines[name][column], value)
            elif lines[name][column] != ("" if column == 3 else NOT_MEASURED):
                wrong.append(f"README, {name}, column {column}: too few rounds are left, {lines[name][column]!r} is shown")
        if cell.get("rate"):
            for column, arm in ((4, "nginx"), (5, "user")):
                tails = [percentile(row["latency"], 0.99) for row in measured[arm]]
                if len(tails) < 5:
                    # Too few rounds for an interval.
                    if lines[name][column]:
                        wrong.append(f"README, {name}, p99 of {arm}: {len(tails)} rounds have no interval")
                    continue
                shown = re.match(r"(.*) \((.*) to (.*)\)", lines[name][column])
                for number, value in zip(shown.groups(), interval(tails)):
                    check(f"README, {name}, p99 of {arm}", number, value)


def deployed(root):
    text = (root / "BENCHMARKING.md").read_text()
    raw = rows(root / "bench/deployed/raw.csv")
    costs = defaultdict(list)
    for row in raw:
        costs[row["cell"].split(" suite=")[0] + ("/many" if "files=" in row["cell"] else ""), bool(row["rate"]), row["arm"]].append(cost(row))
    lines = {line[0]: line for line in table(text, "## As deployed")}
    cells = {
        "1 kB": "size=1024 calls=unlimited connections=64",
        "16 kB": "size=16384 calls=unlimited connections=64",
        "4 kB, 100,000 files": "size=4096 calls=unlimited connections=64/many",
        "1 MB × 2": "size=1048576 calls=unlimited connections=2",
        "64 MB × 2": "size=67108864 calls=unlimited connections=2",
    }
    pairs = [("user", "nginx"), ("user-log", "nginx-log"), ("user-sites", "nginx-log"), ("user-two", "nginx-log"), ("nginx-files", "nginx-log")]
    for name, cell in cells.items():
        for column, (arm, base) in enumerate(pairs, 1):
            value = median(costs[cell, False, arm]) / median(costs[cell, False, base])
            check(f"BENCHMARKING, {name}, {arm}", lines[name][column], value)

    def of(arm, size, many=False):
        return [
            row
            for row in raw
            if (row["arm"], row["size"], "files=" in row["cell"], bool(row["rate"])) == (arm, str(size), many, not many)
        ]

    least, most = re.search(r"vary most: from (.*?) to (.*?) µs in seven rounds", text).groups()
    sites = [cost(row) / 1e3 for row in of("user-sites", 4096, True)]
    check("BENCHMARKING, three sites, least", least, min(sites))
    check("BENCHMARKING, three sites, most", most, max(sites))
    share = re.search(r"Sealion with its\s+access log takes (.*?) of `nginx-files`", text)[1]
    logs = [median(cost(row) for row in of(arm, 4096, True)) for arm in ("user-log", "nginx-files")]
    check("BENCHMARKING, 100,000 files", share, logs[0] / logs[1])
    said = re.search(r"(\d+) µs of both at 1 kB; (\d+) µs, and (\d+) µs of nginx, at 16 kB", text).groups()
    for number, arm, size in zip(said, ("user-log", "user-log", "nginx-log"), (1024, 16384, 16384)):
        check(f"BENCHMARKING, half the load, {arm}, {size}", number, median(percentile(row["latency"], 0.5) for row in of(arm, size)) / 1e3)


def counts(path):
    return {(row["cell"], row["arm"]): cost(row) for row in rows(path)}


def counted(root):
    """The tables of instruction counts in BENCHMARKING.md."""
    text = (root / "BENCHMARKING.md").read_text()
    names = {name: name.replace(" kB", "k").replace(" MB", "m") for name in ("1 kB", "16 kB", "64 kB", "256 kB", "1 MB")}
    guard = [counts(root / f"bench/guard/raw/{kernel}.csv") for kernel in ("6.1", "7.2")]
    for line in table(text, "for a response, from `bench/guard`:")[1:]:
        values = [kernel[names[line[0]], arm] for kernel in guard for arm in ("floor", "kernel", "nginx-ktls")]
        for cell, value in zip(line[1:], values, strict=True):
            check(f"BENCHMARKING, bare sender, {line[0]}", cell, value / 1e3)
    wrk, lab = (counts(root / f"bench/clients/{client}/6.1/raw.csv") for client in ("wrk", "lab"))
    for line in table(text, "`bench/clients` has the rows:")[1:]:
        server, size = line[0].split(", ")
        key = names[size], "user" if server == "Sealion" else "nginx"
        for cell, value in zip(line[1:], (wrk[key] / 1e3, lab[key] / 1e3, wrk[key] / lab[key]), strict=True):
            check(f"BENCHMARKING, wrk, {line[0]}", cell, value)
    with open(root / "bench/clients/by-hand.csv", newline="") as file:
        by_hand = {}
        for row in csv.DictReader(file):
            if row["files"] == "tmpfs" and (row["tcp_no_metrics_save"] == "1") == (row["suite"] != "aes-128-gcm"):
                by_hand[row["kernel"], row["suite"], row["size"], row["server"]] = float(row["instructions"])
    for line in table(text, "`by-hand.csv`; the last round):")[1:]:
        size, kernel = line[0].split(", ")
        of_lab = counts(root / f"bench/clients/wrk-kernel/{kernel}/raw.csv")
        pairs = [(of_lab[names[size], "kernel"], of_lab[names[size], "nginx-ktls"])]
        for suite in ("aes-128-gcm", "wrk's choice"):
            pairs.append(tuple(by_hand[kernel, suite, names[size], server] for server in ("sealion", "nginx")))
        for cell, (ours, theirs) in zip(line[1:], pairs, strict=True):
            for number, value in zip(numbers(cell), (ours / 1e3, theirs / 1e3, ours / theirs), strict=True):
                check(f"BENCHMARKING, wrk on the kernel path, {line[0]}", number, value)
    found = re.search(r"% dearer: (.*?) and (.*?) at 64 kB, (.*?) and (.*?) at 1 MB", text)
    mixed = [("64k", "6.1"), ("64k", "7.2"), ("1m", "6.1"), ("1m", "7.2")]
    for number, (size, kernel) in zip(found.groups(), mixed, strict=True):
        dear, cheap = by_hand[kernel, "wrk's choice", size, "sealion"], by_hand[kernel, "aes-128-gcm", size, "nginx"]
        check(f"BENCHMARKING, two suites, {size}, {kernel}", number, dear / cheap)
    stored = [
        counts(root / f"bench/stored/{kernel}/raw.csv") | counts(root / f"bench/stored-1m/{kernel}/raw.csv")
        for kernel in ("6.1", "7.2")
    ]
    for line in table(text, "--out bench/stored-1m")[1:]:
        size, *streams = line[0].split(", ")
        cell = names[size] + (" h2 16" if streams else "")
        for kernel, of in enumerate(stored):
            file, hit, nginx = (of.get((cell, arm)) for arm in ("user", "user-cache", "nginx-cache"))
            values = [file / 1e3, hit / 1e3, hit / file, nginx and nginx / 1e3, nginx and hit / nginx]
            for shown, value in zip(line[1:], values, strict=True):
                if value:
                    check(f"BENCHMARKING, stored, {line[0]}, kernel {kernel}", shown.split(" / ")[kernel], value)


def size_of(name):
    unit = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(name[:-1]) * unit[name[-1]]


def studies(root):
    text = (root / "docs/studies.md").read_text()
    pairs = [("user", "kernel"), ("user", "auto"), ("nginx", "nginx-ktls")]
    for run in ("guest-6.1", "guest-6.1-without-aes", "guest-7.2"):
        costs = defaultdict(list)
        for row in rows(root / f"bench/studies/{run}/raw.csv"):
            costs[row["study"], row["cell"], row["arm"], int(row["size"])].append(cost(row))
        ratios = defaultdict(list)
        for (study, cell, arm, size), values in costs.items():
            for user, kernel in pairs:
                if arm == kernel:
                    difference = logarithms(values)[0] - logarithms(costs[study, cell, user, size])[0]
                    ratios[size, kernel].append(difference)
                    ratios[study, cell, kernel].append(difference)
        lines = table(text, f"**{run}**, change by size over all studies:")
        for line in lines[1:]:
            for head, shown in list(zip(lines[0], line))[1:]:
                parts = ratios[size_of(line[0]), head.split(" / ")[0]]
                change = 100 * (math.exp(sum(parts) / len(parts)) - 1)
                check(f"studies, {run}, {line[0]}, {head}", shown.replace("±0", "0"), 0 if abs(change) < 0.5 else change)
        for study, calls in (("size-by-calls", "20"), ("container", "unlimited")):
            lines = table(text[text.index(f"\n## {study}\n") :], "**Result there**")
            if run not in lines[0]:
                continue
            for line in lines[1:]:
                size = re.match(r"([0-9]+[kMG])(?: × 20 calls)?$", line[0])
                if not size:
                    continue
                for arm, shown in re.findall(r"(kernel|nginx-ktls) ([+−±][0-9]+)", line[lines[0].index(run)]):
                    found = [
                        value
                        for key, value in ratios.items()
                        if key[0] == study and len(key) == 3 and key[2] == arm
                        and key[1].startswith(f"size={size_of(size[1])} calls={calls} ")
                    ]
                    check(f"studies, {study}, {run}, {line[0]}, {arm}", shown, 100 * (math.exp(found[0][0]) - 1))
    limited = defaultdict(list)
    for row in rows(root / "bench/studies/guest-6.1-half-a-processor/raw.csv"):
        limited[int(row["size"]), row["arm"]].append(float(row["body_bytes"]) / float(row["elapsed"]))
    lines = table(text[text.index("\n## container\n") :], "**Result there**")
    column = lines[0].index("guest-6.1-half-a-processor")
    for line in lines[1:]:
        size = re.match(r"([0-9]+[kM]) under limits, throughput$", line[0])
        for arm, shown in re.findall(r"(\S+) ([+−±][0-9]+) %", line[column]) if size else ():
            base = arm.replace("kernel-", "user-").replace("-ktls", "")
            one, other = (logarithms(limited[size_of(size[1]), name])[0] for name in (arm, base))
            check(f"studies, {line[0]}, {arm}", shown, 100 * (math.exp(one - other) - 1))
    native = [row for row in rows(root / "bench/studies/native/raw.csv") if row["study"] == "nginx-article"]
    throughput = {
        arm: [float(row["body_bytes"]) / float(row["elapsed"]) for row in native if row["arm"] == arm]
        for arm in ("user", "nginx")
    }
    found = re.search(r"throughput of user against nginx, \w+: (.*?) % \(95 %: (.*?) % to (.*?) %\)", text)
    for shown, value in zip(found.groups(), welch(throughput["nginx"], throughput["user"])):
        check("studies, native, throughput of user against nginx", shown, 100 * (value - 1))


def numbers(text):
    """The numbers of a cell, without their thousands separators."""
    return re.findall(r"[0-9]+(?:\.[0-9]+)?", text.replace(",", ""))


def carried(lines, columns):
    """Rows whose empty first cells repeat the row above."""
    above = [""] * columns
    for line in lines:
        above = [cell or last for cell, last in zip(line[:columns], above)]
        yield above, line[columns:]


SIZES = {"16 kB": "16k", "100 kB": "100k", "1 MB": "1m", "4 MB": "4m"}
VISITS = {"new": "new", "idle before": "warm"}


def networks(root):
    text = (root / "docs/networks.md").read_text()
    data = root / "bench/networks"

    def of(name, path, page, visit, arm):
        with open(data / f"{name}.csv", newline="") as file:
            key = (path, SIZES[page], VISITS[visit], arm)
            found = [row for row in csv.DictReader(file) if (row["path"], row["page"], row["visit"], row["arm"]) == key]
        return found[0]

    for (path, page, visit), cells in carried(table(text, "Without loss, three requests each:")[1:], 3):
        name = "no-loss-200" if path.startswith("200") else "no-loss-80"
        for place, (column, arm) in enumerate((c, a) for c in ("first_p50", "last_p50") for a in ("user", "user-h2", "user-h3")):
            check(f"networks, {path}, {page}, {visit}, {arm}", cells[place], float(of(name, path, page, visit, arm)[column]))
    for (path, page, visit), cells in carried(table(text, "CUBIC by RFC 8312")[1:], 3):
        delay = path.split()[0]
        full = f"{path} loss"
        h2, before, h3 = (
            of(name, full, page, visit, arm)
            for name, arm in ((f"h2-{delay}", "user-h2"), (f"h3-{delay}-before", "user-h3"), (f"h3-{delay}", "user-h3"))
        )
        shown = [number for cell in cells for number in numbers(cell)]
        values = [h2["first_p50"], h3["first_p50"], *(row[c] for row in (h2, before, h3) for c in ("last_p50", "last_p90"))]
        for number, value in zip(shown, values, strict=True):
            check(f"networks, {full}, {page}, {visit}", number, float(value))
    series = [(f"{line[0]} of 100", line[1:], "80 ms, 50 Mbit/s, 1 % loss", f"1m-{line[0]}") for line in table(text, "two guests side by side:")[1:]]
    series += [("of 60", line, "200 ms, 20 Mbit/s, 1 % loss", "200-1m") for line in table(text, "which the tables above have not:")[1:]]
    for label, cells, path, name in series:
        for cell, (visit, arm) in zip(cells, ((v, a) for v in ("new", "idle before") for a in ("h2", "h3")), strict=True):
            row = of(f"{arm}-{name}", path, "1 MB", visit, f"user-{arm}")
            for number, column in zip(numbers(cell), ("last_p50", "last_p90"), strict=True):
                check(f"networks, {label}, {visit}, {arm}", number, float(row[column]))
    with open(data / "urgent.csv", newline="") as file:
        urgent = list(csv.DictReader(file))
    with open(data / "urgent-cost.csv", newline="") as file:
        costs = list(csv.DictReader(file))
    sealed = {"user space": "never", "the kernel": "always"}
    for line in table(text, "from the request to the last byte:")[1:]:
        by, kernel = line[0].split(", ")
        arm = sealed[by], kernel
        for place, program in enumerate(("before", "after")):
            found = [row for row in urgent if (row["ktls"], row["kernel"], row["program"]) == (*arm, program)]
            for number, value in zip(numbers(line[1 + place]), spread([float(row["ms"]) for row in found]), strict=True):
                check(f"networks, urgent, {line[0]}, {program}", number, value)
            value = median(float(row["bytes_before"]) for row in found) / 1e3
            check(f"networks, urgent, {line[0]}, bytes {program}", numbers(line[3])[place], value)
        for place, (program, priority) in enumerate((("before", "u=5"), ("after", "none"), ("after", "u=5"))):
            found = (row for row in costs if (row["ktls"], row["kernel"], row["program"], row["priority"]) == (*arm, program, priority))
            value = float(next(found)["instructions"]) / 1e6
            check(f"networks, urgent, {line[0]}, cost {program} {priority}", numbers(line[4])[place], value)


def benchmarks(root):
    lines = table((root / "docs/benchmarks.md").read_text(), "<!-- instructions: ../bench/guard -->")
    kernels = [rows(root / f"bench/guard/raw/{kernel}.csv") for kernel in ("6.1", "7.2")]
    pairs = [("nginx", "user"), ("nginx-log", "user-log"), ("nginx-ktls", "kernel")]
    names = {
        "1 kB": "1k", "16 kB": "16k", "64 kB": "64k", "256 kB": "256k", "1 MB": "1m",
        "1 kB, HTTP/2, 1 at a time": "1k h2 1", "1 kB, HTTP/2, 16 at a time": "1k h2 16",
        "64 kB, HTTP/2, 1 at a time": "64k h2 1", "1 MB, HTTP/2, 1 at a time": "1m h2 1",
        "1 kB, each with a full handshake": "1k × 1", "1 kB, each with a resumed handshake": "1k × 1 resumed",
    }
    for line in lines[1:]:
        for place, (peer, ours) in enumerate(pairs):
            for number, raw in enumerate(kernels):
                counts = [
                    [cost(row) for row in raw if (row["cell"], row["arm"]) == (names[line[0]], arm)] for arm in (peer, ours)
                ]
                if not all(counts):
                    continue
                values = [counts[0][0] / 1e3, counts[1][0] / 1e3, counts[1][0] / counts[0][0]]
                for cell, value in zip(line[1 + 3 * place : 4 + 3 * place], values, strict=True):
                    check(f"benchmarks, {line[0]}, {ours}, kernel {number}", cell.split(" / ")[number], value)


def spread(values):
    return median(values), min(values), max(values)


def applications(root):
    with open(root / "bench/applications/compress.csv", newline="") as file:
        raw = list(csv.DictReader(file))
    arms = [("nginx", "gzip 5"), ("sealion", "gzip 5"), ("sealion", "br 4"), ("sealion", "zstd 3")]
    for line in table((root / "docs/compression.md").read_text(), "### CPU")[1:]:
        kind, size = line[0].split(", ")
        of = {
            arm: {
                row["round"]: row
                for row in raw
                if (row["content"], row["size"], row["server"], row["coding"]) == (kind.lower(), size, *arm)
            }
            for arm in arms
        }
        for cell, arm in zip(line[1:], arms, strict=True):
            cpu = {number: float(row["cpu_us"]) for number, row in of[arm].items()}
            values = [median(cpu.values())]
            if arm != arms[0]:
                values += spread([value / float(of[arms[0]][number]["cpu_us"]) for number, value in cpu.items()])
            values.append(float(next(iter(of[arm].values()))["bytes"]))
            for number, value in zip(numbers(cell), values, strict=True):
                check(f"compression, {line[0]}, {arm}", number, value)
    with open(root / "bench/applications/download.csv", newline="") as file:
        raw = list(csv.DictReader(file))
    lines = table((root / "docs/authorised-downloads.md").read_text(), "## What it costs")[1:]
    for line, server in zip(lines, ("nginx", "sealion"), strict=True):
        static, accel = (
            {row["round"]: float(row["cpu_s"]) for row in raw if (row["server"], row["how"]) == (server, how)}
            for how in ("static", "accel")
        )
        values = [median(static.values()), median(accel.values()), *spread([accel[number] / static[number] for number in static])]
        shown = [number for cell in line[1:4] for number in numbers(cell)]
        for number, value in zip(shown, values, strict=True):
            check(f"authorised downloads, {server}", number, value)


def upgrade(root):
    def column(name, key):
        with open(root / f"bench/upgrade/{name}.csv", newline="") as file:
            return [float(row[key]) for row in csv.DictReader(file)]

    ends = column("many", "to_the_end_of_the_old_process_ms")
    found = re.search(r"9,000 idle ones\nin (.*?) s ", (root / "README.md").read_text())
    check("README, upgrade", found[1], median(ends) / 1e3)
    lines = {line[0]: line[1] for line in table((root / "docs/operations.md").read_text(), "### Costs of an upgrade")}
    shown = next(value for name, value in lines.items() if name.startswith("9,000 idle"))
    for number, value in zip(numbers(shown), (min(ends), max(ends)), strict=True):
        check("operations, the end of the old process in tens of ms", str(int(number) // 10), value / 10)
    pauses = column("pause", "longest_ms")
    shown = numbers(next(value for name, value in lines.items() if name.startswith("the longest request")))
    for number, value in zip(shown, (median(pauses), len(pauses), max(pauses)), strict=True):
        check("operations, the longest request", number, value)
    with open(root / "bench/upgrade/messages.csv", newline="") as file:
        messages = {row["protocol"]: float(row["bytes"]) for row in csv.DictReader(file)}
    shown = lines["the message that passes an idle connection"]
    for number, protocol in zip(re.findall(r"([0-9]+) bytes", shown), ("http/1.1", "h2"), strict=True):
        check(f"operations, a message of {protocol}", number, messages[protocol])
    shares = [new / old for new, old in zip(column("many", "new_kb"), column("many", "old_kb"))]
    shown = numbers(next(value for name, value in lines.items() if name.startswith("resident memory")))
    for number, value in zip(shown, (min(shares), max(shares)), strict=True):
        check("operations, memory of an upgrade", number, value)


def io_uring(root):
    def column(name, **wanted):
        with open(root / f"bench/io-uring/{name}.csv", newline="") as file:
            found = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
        each = lambda key: [float(row[key]) / float(row["requests"]) for row in found]
        return each("cpu_ns"), each("client_waits")

    text = (root / "BENCHMARKING.md").read_text()
    for line in table(text, "`bench/io-uring/floors.csv` has the rows:")[1:]:
        program, steps = line[0].split(", ")
        kind = {"responder": "serve", "relay": "relay"}[program]
        ways = [column("floors", kind=kind, steps=steps.replace(",", ""), way=way) for way in ("epoll", "epoll-later", "uring")]
        epoll, later, uring = (cpu for cpu, _ in ways)
        values = [value / 1e3 for value in spread(epoll)]
        for way in (later, uring):
            values += spread([value / base for value, base in zip(way, epoll)])
        values.append(median(value - base for value, base in zip(later, uring)) / 1e3)
        values += [median(waits) for _, waits in ways]
        shown = [number for cell in line[1:] for number in numbers(cell)]
        for number, value in zip(shown, values, strict=True):
            check(f"BENCHMARKING, io_uring, {line[0]}", number, value)
    cpu, waits = column("sealion")
    check("BENCHMARKING, io_uring, Sealion", re.search(r"costs (.*?) µs\n", text)[1], median(cpu) / 1e3)
    check("BENCHMARKING, io_uring, its client", re.search(r"client waits (.*?) times", text)[1], median(waits))


def main():
    root = Path(sys.argv[1])
    for page in (readme, deployed, counted, studies, networks, benchmarks, applications, upgrade, io_uring):
        before = figures
        page(root)
        if figures == before:
            wrong.append(f"{page.__name__}: no figure is recomputed")
    for line in wrong:
        print(line)
    print(f"{figures - len(wrong)} of {figures} figures agree")
    return 1 if wrong or figures < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
