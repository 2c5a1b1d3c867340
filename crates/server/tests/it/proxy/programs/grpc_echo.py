"""gRPC by its own library, messages as octets:
   python3 grpc_echo.py server                     writes `port N`
   python3 grpc_echo.py client PORT CERTIFICATE    writes `ok NAME` for each case
"""

import sys
from concurrent import futures

import grpc

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def unary(message, context):
    context.set_trailing_metadata((("x-length", str(len(message))),))
    return message


def many(message, context):
    for n in range(100):
        yield message + str(n).encode()


def collect(messages, context):
    return b"".join(messages)


def both(messages, context):
    yield from messages


def fail(message, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: é%\n")


def slow(message, context):
    context.add_callback(lambda: print("ended", flush=True))
    while context.is_active():
        yield message


HANDLERS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Many": grpc.unary_stream_rpc_method_handler(many),
    "Collect": grpc.stream_unary_rpc_method_handler(collect),
    "Both": grpc.stream_stream_rpc_method_handler(both),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Slow": grpc.unary_stream_rpc_method_handler(slow),
}


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(), options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", HANDLERS),))
    print("port", server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


def ask(port, certificate):
    with open(certificate, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    with grpc.secure_channel(f"localhost:{port}", credentials, OPTIONS) as channel:
        for message in (b"", b"hello", bytes(range(256)) * 40_000):
            answer, call = channel.unary_unary("/Echo/Unary").with_call(message, timeout=60)
            assert answer == message and call.code() == grpc.StatusCode.OK
            assert ("x-length", str(len(message))) in call.trailing_metadata(), call.trailing_metadata()
        print("ok unary")
        assert list(channel.unary_stream("/Echo/Many")(b"n", timeout=60)) == [b"n%d" % n for n in range(100)]
        print("ok many answers")
        assert channel.stream_unary("/Echo/Collect")(iter([b"x" * 1000] * 500), timeout=60) == b"x" * 500_000
        print("ok many messages")
        sent = [b"y" * n for n in range(0, 60_000, 300)]
        assert list(channel.stream_stream("/Echo/Both")(iter(sent), timeout=60)) == sent
        print("ok both directions")
        for method, code in (("Fail", grpc.StatusCode.FAILED_PRECONDITION), ("None", grpc.StatusCode.UNIMPLEMENTED)):
            try:
                channel.unary_unary(f"/Echo/{method}")(b"", timeout=60)
                raise AssertionError(method)
            except grpc.RpcError as error:
                assert error.code() == code, error
                assert method == "None" or error.details() == "not now: é%\n", error.details()
        print("ok failures")
        answers = channel.unary_stream("/Echo/Slow")(b"again", timeout=60)
        assert next(answers) == b"again"
        answers.cancel()
        print("ok cancelled")


if sys.argv[1] == "server":
    serve()
else:
    ask(*sys.argv[2:])
