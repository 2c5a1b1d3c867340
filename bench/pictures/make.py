#!/usr/bin/env python3
"""Makes the pictures of docs/pictures: a listing, `sealion top` and the report of a run.

    bench/pictures/make.py target/release

The argument is the directory of both programs. Needs Debian's chromium, tmux, pngquant and fonts-dejavu-core.
"""

import html
import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs/pictures"
HTTPS, HTTP, METRICS, BEHIND = 18443, 18080, 19443, 18081
COLUMNS, LINES = 100, 27
# The maximum wait for a server, a page or a screen.
PATIENCE = 60

CONFIG = f"""
[[listen]]
address = "localhost:{HTTPS}"

[[listen]]
address = "127.0.0.1:{HTTP}"
tls = false
plain = "serve"

[metrics]
listen = "127.0.0.1:{METRICS}"

[access_log]
to = "off"

[[upstream]]
name = "api"
servers = [{{ url = "http://127.0.0.1:{BEHIND}" }}]

[[site]]
root = "www"
listing = true

[[site.route]]
path = "/api/"
proxy = {{ to = "api" }}
"""

FILES = {
    "debian-13.1-amd64.iso": (790_000_000, "2026-09-06T08:12"),
    "debian-13.1-arm64.iso": (712_000_000, "2026-09-06T08:40"),
    "README.txt": (1_834, "2026-09-07T10:05"),
    "SHA256SUMS": (1_212, "2026-09-06T09:00"),
    "SHA256SUMS.sign": (833, "2026-09-06T09:01"),
    "release-notes.html": (48_211, "2026-09-05T17:30"),
    "talk – opening.webm": (86_300_000, "2026-07-18T12:00"),
}
DIRECTORIES = {"archive": "2026-03-01T00:00", "source": "2026-09-06T07:55", "torrents": "2026-09-06T09:10"}
PAGES = {"/": 6_500, "/style.css": 9_000, "/app.js": 64_000, "/photo.jpg": 240_000, "/film.mp4": 1_000_000}


def main():
    programs = Path(sys.argv[1]).resolve()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        write_files(scratch / "www")
        behind = serve_behind(scratch)
        (scratch / "sealion.toml").write_text(CONFIG)
        command = [programs / "sealion", "serve", "--config", scratch / "sealion.toml"]
        environment = {**os.environ, "XDG_DATA_HOME": str(scratch / "state")}
        server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: get(f"127.0.0.1:{METRICS}", "/health") == 200)
            shoot(f"http://127.0.0.1:{HTTP}/pub/", "listing", 900, 650)
            (scratch / "top.html").write_text(terminal(top(programs, scratch)))
            shoot((scratch / "top.html").as_uri(), "top", int(8.43 * COLUMNS) + 32, 18 * LINES + 34)
        finally:
            for process in (server, behind):
                process.terminate()
                process.wait(PATIENCE)
        run = scratch / "run"
        shutil.copytree(ROOT / "bench/peers", run)
        subprocess.run([programs / "sealion-lab", "report", run], check=True, stdout=subprocess.DEVNULL)
        shoot((run / "report.html").as_uri(), "report", 1000, 900)


def write_files(www):
    for name, size in PAGES.items():
        path = www / ("index.html" if name == "/" else name[1:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    (www / "pub").mkdir()
    for name, (size, modified) in FILES.items():
        with open(www / "pub" / name, "wb") as file:
            file.truncate(size)
        set_time(www / "pub" / name, modified)
    for name, modified in DIRECTORIES.items():
        (www / "pub" / name).mkdir()
        set_time(www / "pub" / name, modified)


def set_time(path, modified):
    seconds = time.mktime(time.strptime(modified, "%Y-%m-%dT%H:%M"))
    os.utime(path, (seconds, seconds))


def serve_behind(scratch):
    """The server that requests for /api/ are forwarded to."""
    users = scratch / "behind/api/users"
    users.parent.mkdir(parents=True)
    users.write_text('{"users": ["Ada", "Grace"]}\n')
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", scratch / "behind", str(BEHIND)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: get(f"127.0.0.1:{BEHIND}", "/api/users") == 200)
    return server


def get(authority, path):
    try:
        connection = http.client.HTTPConnection(authority, timeout=PATIENCE)
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None


def wait_for(is_true):
    end = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > end:
            sys.exit("a server or a screen does not come")
        time.sleep(0.05)


def top(programs, scratch):
    """The screen of `sealion top` while clients load the server, with its colours as escape sequences."""
    socket = str(scratch / "tmux")
    tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
    stop = threading.Event()
    clients = [threading.Thread(target=load, args=(stop, number)) for number in range(3)]
    for client in clients:
        client.start()
    command = f"{programs / 'sealion'} top --every 500ms --url http://127.0.0.1:{METRICS}"
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    new = tmux + ["new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), command]
    subprocess.run(new, check=True, env=environment)
    try:
        seen = []

        def has_history():
            screen = capture(tmux, [])
            if "/film.mp4" in screen and (not seen or screen != seen[-1]):
                seen.append(screen)
            return len(seen) > 50

        wait_for(has_history)
        return capture(tmux, ["-e"])
    finally:
        stop.set()
        subprocess.run(tmux + ["kill-server"], check=False)
        for client in clients:
            client.join()


def capture(tmux, options):
    return subprocess.run(tmux + ["capture-pane", "-p"] + options, check=True, capture_output=True, text=True).stdout


def load(stop, number):
    """Requests pages until `stop`, in an order of its own, also some that are not there."""
    paths = list(PAGES) + ["/api/users", "/app.js", "/", "/none"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    end = time.monotonic() + PATIENCE
    at = number
    while not stop.is_set() and time.monotonic() < end:
        connection = http.client.HTTPSConnection("localhost", HTTPS, context=context, timeout=PATIENCE)
        for _ in range(40):
            connection.request("GET", paths[at % len(paths)])
            connection.getresponse().read()
            at += 1
            time.sleep(0.002 + 0.01 * (at % 7 == 0))
        connection.close()


PALETTE = ["#1e1e1e", "#e05561", "#8cc265", "#d18f52", "#4aa5f0", "#c162de", "#42b3c2", "#d7dae0"]
BRIGHT = ["#7f848e", "#ff616e", "#a5e075", "#f0a45d", "#4dc4ff", "#de73ff", "#4cd1e0", "#ffffff"]


def terminal(screen):
    """A page that shows the screen: each escape sequence of SGR (ECMA-48) begins an element."""
    made = []
    style = {}
    for text in re.split(r"(\x1b\[[0-9;]*m)", screen.rstrip("\n")):
        sequence = re.fullmatch(r"\x1b\[([0-9;]*)m", text)
        if sequence:
            apply(style, [int(code or 0) for code in sequence[1].split(";")])
        elif text:
            css = ";".join(f"{key}:{value}" for key, value in style.items())
            made.append(f'<span style="{css}">{html.escape(text)}</span>')
    return (
        '<meta charset="utf-8"><style>body{margin:0;padding:16px;background:#1e1e1e}'
        "pre{margin:0;color:#d7dae0;font:14px/18px DejaVu Sans Mono}</style><pre>" + "".join(made) + "</pre>"
    )


def apply(style, codes):
    while codes:
        code = codes.pop(0)
        if code == 0:
            style.clear()
        elif code == 1:
            style["font-weight"] = "bold"
        elif code == 2:
            style["opacity"] = "0.6"
        elif code == 7:
            style.update({"background": "#d7dae0", "color": "#1e1e1e"})
        elif code in (22, 27, 39, 49):
            for key in {22: ["font-weight", "opacity"], 27: ["background", "color"], 39: ["color"], 49: ["background"]}[code]:
                style.pop(key, None)
        elif code in (38, 48):
            key = "color" if code == 38 else "background"
            if codes.pop(0) == 5:
                style[key] = indexed(codes.pop(0))
            else:
                style[key] = "rgb({},{},{})".format(*[codes.pop(0) for _ in range(3)])
        elif 30 <= code <= 37 or 40 <= code <= 47:
            style["color" if code < 40 else "background"] = PALETTE[code % 10]
        elif 90 <= code <= 97:
            style["color"] = BRIGHT[code - 90]


def indexed(index):
    """A colour of xterm's 256."""
    if index < 16:
        return (PALETTE + BRIGHT)[index]
    if index >= 232:
        return "rgb({0},{0},{0})".format(8 + 10 * (index - 232))
    levels = [0, 95, 135, 175, 215, 255]
    index -= 16
    return f"rgb({levels[index // 36]},{levels[index // 6 % 6]},{levels[index % 6]})"


def shoot(url, name, width, height):
    """A picture of the page in docs/pictures, with at most 256 colours."""
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw.png"
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={scratch}/profile", f"--window-size={width},{height}", f"--screenshot={raw}", url]
        subprocess.run(command, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        to = PICTURES / f"{name}.png"
        subprocess.run(["pngquant", "--force", "--strip", "--output", to, "256", raw], check=True)
        print(f"{to.relative_to(ROOT)}: {to.stat().st_size} bytes")


if __name__ == "__main__":
    main()
