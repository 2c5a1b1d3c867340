#!/usr/bin/env python3
"""Server CPU of two tasks of an application server: compressing proxied responses, and sending a file that PHP authorises.

    bench/applications/measure.py compress --sealion target/release/sealion --out bench/applications
    bench/applications/measure.py download --sealion target/release/sealion --out bench/applications
    bench/applications/measure.py report bench/applications

CPU is utime and stime of /proc/PID/stat of the processes that serve (the worker of nginx, the process of Sealion), in user space, over TLS 1.2 with
ECDHE-ECDSA-AES128-GCM-SHA256 on loopback. Arms alternate within a round. It needs nginx, openssl and, for `download`, php-fpm."""

import argparse, atexit, csv, json, os, random, shutil, signal, socket, ssl, statistics, struct, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
SIZES = {"10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000}
# Server, Accept-Encoding, coding and level.
ARMS = [("nginx", "gzip", "gzip 5"), ("sealion", "gzip", "gzip 5"), ("sealion", "br", "br 4"), ("sealion", "zstd", "zstd 3")]


def contents():
    """HTML and JSON of each size, of the sentences of this repository's pages and numbers of a fixed seed."""
    chance = random.Random(1)
    lines = [line for page in sorted((HERE.parent.parent / "docs").glob("*.md")) for line in page.read_text().splitlines() if len(line) > 40]
    made = {}
    for label, size in SIZES.items():
        html, items = ["<!doctype html><html lang=en><head><title>Items</title></head><body><main>"], []
        while sum(map(len, html)) < size:
            number = chance.randrange(10**6)
            html.append(f'<article class="item item-{number % 7}" id="i{number}"><h2><a href="/items/{number}">Item {number}</a></h2><p>{chance.choice(lines)[:300]}</p></article>')
        while len(json.dumps(items)) < size:
            number = chance.randrange(10**9)
            items += [{"id": number, "name": f"item-{number % 977}", "price": round(chance.random() * 100, 2), "tags": chance.sample(["new", "used", "red", "blue", "large"], 2),
                       "text": chance.choice(lines)[:120], "updated": f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}T00:00:00Z"} for _ in range(max(1, size // 40_000))]
        made["html", label] = "\n".join(html).encode()[:size]
        made["json", label] = json.dumps(items).encode()[:size]
    return made


class Servers:
    """nginx and Sealion in front of the same origin, each with one worker."""

    def __init__(self, sealion, port):
        self.directory, self.port, self.processes = Path(tempfile.mkdtemp(prefix="applications-")), port, {}
        self.directory.chmod(0o755)
        atexit.register(self.stop)
        self.sealion, self.addresses = sealion, {"nginx": port, "sealion": port + 1}
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", self.directory / "key.pem", "-out", self.directory / "cert.pem"], check=True, capture_output=True)
        (self.directory / "www").mkdir()

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text.replace("@DIR@", str(self.directory)).replace("@NGINX@", str(self.port)).replace("@SEALION@", str(self.port + 1)).replace("@ORIGIN@", str(self.port + 2)))
        return path

    def run(self, name, command):
        self.processes[name] = subprocess.Popen(list(map(str, command)), stdout=open(self.directory / f"{name}.log", "w"), stderr=subprocess.STDOUT)

    def start(self, nginx, sealion, origin=None):
        common = f"daemon off; worker_processes 1; user root; events {{ worker_connections 1000; }} error_log @DIR@/error.log warn;"
        http = "access_log off; include /etc/nginx/mime.types; sendfile on; tcp_nopush on; keepalive_requests 1000000;"
        tls = "ssl_certificate @DIR@/cert.pem; ssl_certificate_key @DIR@/key.pem;"
        if origin:
            self.run("origin", ["nginx", "-c", self.write("origin.conf", f"pid @DIR@/origin.pid; {common} http {{ {http} {origin} }}")])
        self.run("nginx", ["nginx", "-c", self.write("nginx.conf", f"pid @DIR@/nginx.pid; {common} http {{ {http} {tls} {nginx} }}")])
        head = '[server]\nworkers = 1\nktls = "never"\n[[listen]]\naddress = "127.0.0.1:@SEALION@"\n[access_log]\nto = "off"\n'
        site = '[[site]]\nnames = ["localhost"]\ndefault = true\ncertificates = [{ cert = "@DIR@/cert.pem", key = "@DIR@/key.pem" }]\n'
        self.run("sealion", [self.sealion, "serve", "--config", self.write("sealion.toml", head + sealion.replace("@SITE@", site))])
        for port in self.addresses.values():
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                sys.exit("".join(path.read_text() for path in self.directory.glob("*.log")))

    def cpu(self, name):
        """Seconds of CPU of the process that serves."""
        pid = self.processes[name].pid
        if name == "nginx":
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def stop(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
            process.wait()
        shutil.rmtree(self.directory)


class Client:
    """A connection over TLS 1.2, which HTTP/1.1 keeps."""

    def __init__(self, port):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        self.io = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        self.left = b""

    def more(self):
        piece = self.io.recv(1 << 16)
        if not piece:
            raise EOFError("the connection ended")
        self.left += piece

    def until(self, end):
        while end not in self.left:
            self.more()
        found, self.left = self.left.split(end, 1)
        return found

    def get(self, path, fields="", skip=False):
        """Fields and bytes of the content."""
        self.io.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
        head = self.until(b"\r\n\r\n").decode()
        if not head.startswith("HTTP/1.1 200"):
            sys.exit(head)
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in head.split("\r\n")[1:])}
        if skip:
            return fields
        return fields, self.content(fields)

    def content(self, fields):
        if "content-length" in fields:
            length = int(fields["content-length"])
            left, self.left = length - len(self.left), b""
            buffer = bytearray(1 << 20)
            while left > 0:
                left -= self.io.recv_into(buffer, min(left, len(buffer))) or sys.exit("the content broke off")
            return length
        total = 0
        while True:
            size = int(self.until(b"\r\n"), 16)
            while len(self.left) < size + 2:
                self.more()
            self.left, total = self.left[size + 2:], total + size
            if size == 0:
                return total


def machine(options, servers):
    processor = next((line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "unknown")
    version = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip()
    modified = time.strftime("%Y-%m-%d", time.gmtime(os.stat(options.sealion).st_mtime))
    return {"processor": processor, "kernel": os.uname().release, "nginx": version, "sealion built": modified, "load at start": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d"), "rounds": options.rounds,
            "configurations": {name: (servers.directory / name).read_text().replace(str(servers.directory), "DIR") for name in ["nginx.conf", "sealion.toml"]}}


def measure(servers, name, task, least):
    """Seconds of CPU for one task, of as many as take `least` seconds."""
    begun, count = servers.cpu(name), 0
    while True:
        task()
        count += 1
        used = servers.cpu(name) - begun
        if used >= least:
            return used / count, count


def save(options, name, rows, conditions):
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (options.out / f"{name}.json").write_text(json.dumps(conditions, indent=1) + "\n")


def compress(options):
    servers = Servers(options.sealion, options.port)
    for (kind, label), content in contents().items():
        (servers.directory / "www" / f"{label.replace(' ', '')}.{kind}").write_bytes(content)
    servers.start(
        "gzip on; gzip_comp_level 5; gzip_proxied any; gzip_types application/json; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Accept-Encoding '';"
        "upstream origin { server 127.0.0.1:@ORIGIN@; keepalive 8; } server { listen 127.0.0.1:@NGINX@ ssl; location / { proxy_pass http://origin; } }",
        '@SITE@proxy = { to = "http://127.0.0.1:@ORIGIN@", request_headers = [{ name = "Accept-Encoding", value = "" }] }\n'
        '[site.compress]\nlevels = { br = 4, zstd = 3, gzip = 5 }\n',
        "server { listen 127.0.0.1:@ORIGIN@; root @DIR@/www; }",
    )
    rows, conditions = [], machine(options, servers)
    clients = {name: Client(port) for name, port in servers.addresses.items()}
    for number in range(options.rounds):
        for kind in ["html", "json"]:
            for label in SIZES:
                for server, coding, level in ARMS[::-1 if number % 2 else 1]:
                    sizes = []

                    def ask():
                        fields, size = clients[server].get(f"/{label.replace(' ', '')}.{kind}", f"Accept-Encoding: {coding}\r\n")
                        assert fields.get("content-encoding") == coding, fields
                        sizes.append(size)

                    cpu, count = measure(servers, server, ask, options.least)
                    rows.append({"round": number, "content": kind, "size": label, "server": server, "coding": level, "requests": count, "cpu_us": round(cpu * 1e6, 1), "bytes": sizes[0]})
        print("round", number + 1, "of", options.rounds, flush=True)
    save(options, "compress", rows, conditions)


class Fpm:
    """php-fpm with four workers."""

    def __init__(self, directory, program):
        self.socket = str(directory / "php.sock")
        config = directory / "fpm.conf"
        config.write_text(f"[global]\nerror_log = {directory}/fpm.log\ndaemonize = no\n[www]\nuser = www-data\nlisten = {self.socket}\nlisten.mode = 0666\npm = static\npm.max_children = 4\npm.status_path = /status\n")
        self.process = subprocess.Popen([program, "-y", config], stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            time.sleep(0.05)

    def active(self):
        """Busy workers, without the one that answers this."""
        params = {"SCRIPT_NAME": "/status", "SCRIPT_FILENAME": "/status", "REQUEST_METHOD": "GET", "QUERY_STRING": "json"}
        pairs = b"".join(bytes([len(name), len(value)]) + name.encode() + value.encode() for name, value in params.items())
        record = lambda kind, content: struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content
        io = socket.socket(socket.AF_UNIX)
        io.connect(self.socket)
        io.sendall(record(1, struct.pack(">HB5x", 1, 0)) + record(4, pairs) + record(4, b"") + record(5, b""))
        reply = b""
        while piece := io.recv(4096):
            reply += piece
        return json.loads(reply[reply.index(b"{"):reply.rindex(b"}") + 1])["active processes"] - 1


def download(options):
    servers = Servers(options.sealion, options.port)
    www = servers.directory / "www"
    with open(www / "big.bin", "wb") as file:
        for _ in range(options.megabytes):
            file.write(random.randbytes(1_000_000))
    (www / "download.php").write_text("<?php header('Content-Type: application/octet-stream'); header('X-Accel-Redirect: /private/big.bin');\n")
    fpm = Fpm(servers.directory, options.php_fpm)
    servers.processes["php-fpm"] = fpm.process
    servers.start(
        "server { listen 127.0.0.1:@NGINX@ ssl; root @DIR@/www; location = /download.php { include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;"
        "fastcgi_pass unix:@DIR@/php.sock; } location /private/ { internal; alias @DIR@/www/; } }",
        '[[upstream]]\nname = "php"\nprotocol = "fastcgi"\nservers = [{ url = "unix:@DIR@/php.sock" }]\n@SITE@root = "@DIR@/www"\naccel = true\n'
        '[[site.route]]\npath = "= /download.php"\nfastcgi = { to = "php" }\n[[site.route]]\npath = "/private/"\ninternal = true\nalias = "@DIR@/www"\nfiles = true\n',
    )
    rows, conditions = [], machine(options, servers)
    for number in range(options.rounds):
        arms = [(server, how) for how in ["static", "accel"] for server in ["nginx", "sealion"]]
        for server, how in arms[::-1 if number % 2 else 1]:
            client = Client(servers.addresses[server])
            begun = servers.cpu(server)
            fields = client.get("/big.bin" if how == "static" else "/download.php", skip=True)
            # The client has the head, and takes nothing more for a moment.
            held = [fpm.active() for _ in range(20) if time.sleep(0.01) is None]
            length = client.content(fields)
            assert length == options.megabytes * 1_000_000
            rows.append({"round": number, "server": server, "how": how, "bytes": length, "cpu_s": round(servers.cpu(server) - begun, 2), "php_workers_held": min(held)})
        print("round", number + 1, "of", options.rounds, flush=True)
    save(options, "download", rows, conditions)


def spread(values):
    return statistics.median(values), min(values), max(values)


def report(options):
    read = lambda name: list(csv.DictReader(open(options.out / f"{name}.csv")))
    rows = read("compress")
    print("| | nginx gzip 5 | gzip 5 | br 4 | zstd 3 |\n|---|---|---|---|---|")
    for kind in ["html", "json"]:
        for label in SIZES:
            cells = []
            of = lambda server, coding: {row["round"]: row for row in rows if (row["content"], row["size"], row["server"], row["coding"]) == (kind, label, server, coding)}
            base = of("nginx", "gzip 5")
            for server, _, coding in ARMS:
                own = of(server, coding)
                cpu, size = spread([float(row["cpu_us"]) for row in own.values()])[0], next(iter(own.values()))["bytes"]
                middle, least, most = spread([float(row["cpu_us"]) / float(base[number]["cpu_us"]) for number, row in own.items()])
                ratio = "" if server == "nginx" else f", {middle:.2f} ({least:.2f}–{most:.2f})"
                cells.append(f"{cpu:.0f} µs{ratio}, {int(size):,} bytes")
            print(f"| {kind.upper()}, {label} | " + " | ".join(cells) + " |")
    rows = read("download")
    print("\n| | static | X-Accel-Redirect | ratio | busy PHP workers |\n|---|---|---|---|---|")
    for server in ["nginx", "sealion"]:
        of = lambda how: {row["round"]: row for row in rows if (row["server"], row["how"]) == (server, how)}
        static, accel = of("static"), of("accel")
        middle, least, most = spread([float(accel[number]["cpu_s"]) / float(static[number]["cpu_s"]) for number in static])
        cpu = [spread([float(row["cpu_s"]) for row in arm.values()])[0] for arm in [static, accel]]
        held = max(int(row["php_workers_held"]) for row in accel.values())
        print(f"| {server} | {cpu[0]:.2f} s | {cpu[1]:.2f} s | {middle:.2f} ({least:.2f}–{most:.2f}) | {held} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["compress", "download", "report"])
    parser.add_argument("out_of_report", nargs="?", type=Path)
    parser.add_argument("--sealion", default="target/release/sealion")
    parser.add_argument("--php-fpm", default="php-fpm8.2")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.3, help="seconds of CPU of each measurement")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--port", type=int, default=42530, help="the first of three free ports")
    options = parser.parse_args()
    options.out = options.out_of_report or options.out
    {"compress": compress, "download": download, "report": report}[options.command](options)


if __name__ == "__main__":
    main()
