"""Measure the cost of an empty call: the CPU of server and client, with the installed gRPC.

    .venv/bin/python tools/empty_call.py [--uvloop]

It compares versions of gRPC (bench/conclusions.md): run it alternately in environments that differ only in grpcio,
a few times each.
"""

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Iterable

import grpc
import uvloop

CALLS = 20_000
CALLERS = 16
PAYLOAD = b"x" * 300
METADATA = (("x-request-id", "0123456789"), ("authorization", "none"))


def read_cpu_usage() -> tuple[float, int]:
    """Return the CPU seconds and the context switches of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw + usage.ru_nivcsw


def print_usage(name: str, before: tuple[float, int]) -> None:
    seconds, switches = (now - then for now, then in zip(read_cpu_usage(), before, strict=True))
    print(f"{name}: {seconds / CALLS * 1e6:.0f} us, {switches / CALLS:.1f} changes of thread a call", flush=True)


async def echo(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return request


async def serve() -> None:
    """Serve until the input ends."""
    server = grpc.aio.server()
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Empty", handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    before = read_cpu_usage()
    await asyncio.to_thread(sys.stdin.read)
    print_usage("server", before)
    await server.stop(0)


async def call_server(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary("/Empty/Echo")
        await method(PAYLOAD)

        async def some(turns: Iterable[int]) -> None:
            for _ in turns:
                await method(PAYLOAD, metadata=METADATA, timeout=30)

        turns = iter(range(CALLS))  # shared: whoever is free takes the next
        before, began = read_cpu_usage(), time.monotonic()
        await asyncio.gather(*(some(turns) for _ in range(CALLERS)))
        rate = CALLS / (time.monotonic() - began)
        print_usage("client", before)
        print(f"{rate:,.0f} calls/s with {CALLERS} callers, grpcio {grpc.__version__}")


def main(arguments: list[str]) -> None:
    run = uvloop.run if "--uvloop" in arguments else asyncio.run
    if "serve" in arguments:
        run(serve())
        return
    command = [sys.executable, __file__, *arguments, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        run(call_server(int(server.stdout.readline())))
        server.stdin.close()
        print(server.stdout.read(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
