#!/usr/bin/env python3
"""Times a request of 10 kB that follows on a large response of the same HTTP/2 connection.

    urgent.py HOST PORT LARGE SMALL SAMPLES BEGUN STEP

Each sample has a new connection. It asks for SMALL when BEGUN bytes of LARGE have come, and the next one STEP bytes later: the queue of
a network is not always equally full. Prints a line a sample: milliseconds from the request to the last byte of SMALL, and the bytes of LARGE between.
"""
import socket, ssl, struct, sys, time

host, port, large, small, samples, begun, step = sys.argv[1], int(sys.argv[2]), *sys.argv[3:5], *map(int, sys.argv[5:8])


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(stream, path, priority):
    fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path.encode()),
              (b"priority", priority)]
    return frame(1, 5, stream, b"".join(literal(*field) for field in fields))


context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
for sample in range(samples):
    with context.wrap_socket(socket.create_connection((host, port)), server_hostname="localhost") as tls:
        file = tls.makefile("rb", buffering=1 << 15)
        most = (1 << 31) - 1
        tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, most))
                    + frame(8, 0, 0, struct.pack(">I", most - 65535)) + request(1, large, b"u=5"))
        got, asked, start, at = {1: 0, 3: 0}, False, 0.0, 0
        while True:
            head = file.read(9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream = int.from_bytes(head[5:9], "big")
            assert kind not in (3, 7), f"frame {kind}"
            file.read(length)
            if kind == 4 and not flags & 1:
                tls.sendall(frame(4, 1, 0, b""))
            if kind == 0:
                got[stream] += length
            if not asked and got[1] >= begun + sample * step:
                asked, start, at = True, time.monotonic(), got[1]
                tls.sendall(request(3, small, b"u=0"))
            if stream == 3 and kind == 0 and flags & 1:
                print(f"{(time.monotonic() - start) * 1000:.1f} {got[1] - at}", flush=True)
                break
