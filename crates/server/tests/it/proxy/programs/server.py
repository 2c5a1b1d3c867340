"""An application on http.server; `server.go` and `server.mjs` do the same, but for trailers. Writes `port N`."""

import queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

following = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def content(self):
        """The pieces of the request's content, as they come."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while length := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(length)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left:
                piece = self.rfile.read1(min(left, 65536))
                left -= len(piece)
                yield piece

    def answer(self, content, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer_pieces(self, pieces, kind="text/plain"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        match self.path.split("?")[0]:
            case "/get":
                fields = self.headers["Host"], self.headers["X-Forwarded-Proto"]
                self.answer(" ".join((self.command, self.path, *fields)).encode())
            case "/port":
                self.answer(str(self.client_address[1]).encode())
            case "/echo":
                self.answer_pieces(self.content())
            case "/chunked":
                self.answer_pieces(b"piece %d\n" % n for n in range(10))
            case "/events":
                self.answer_pieces(self.events(), "text/event-stream")
            case "/next":
                following.put(True)
                self.answer(b"gone")
            case _:
                self.answer(b"nothing", 404)

    def events(self):
        for n in range(3):
            yield b"data: %d\n\n" % n
            following.get()

    do_POST = do_GET


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("port", server.server_port, flush=True)
server.serve_forever()
