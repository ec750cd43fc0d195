"""What a call costs in which nothing is done: the CPU of server and client, with the gRPC that is installed.

    .venv/bin/python tools/empty_call.py [--uvloop]

Says what another version of gRPC costs (bench/conclusions.md): run it in turns in environments that differ in
grpcio only, a few times each.
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


def used() -> tuple[float, int]:
    """CPU seconds, and changes of thread, of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw + usage.ru_nivcsw


def report(name: str, before: tuple[float, int]) -> None:
    seconds, switches = (now - then for now, then in zip(used(), before, strict=True))
    print(f"{name}: {seconds / CALLS * 1e6:.0f} us, {switches / CALLS:.1f} changes of thread a call", flush=True)


async def echo(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return request


async def serve() -> None:
    """Until its input ends."""
    server = grpc.aio.server()
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Empty", handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    before = used()
    await asyncio.to_thread(sys.stdin.read)
    report("server", before)
    await server.stop(0)


async def call(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary("/Empty/Echo")
        await method(PAYLOAD)

        async def some(turns: Iterable[int]) -> None:
            for _ in turns:
                await method(PAYLOAD, metadata=METADATA, timeout=30)

        turns = iter(range(CALLS))  # shared: whoever is free takes the next
        before, began = used(), time.monotonic()
        await asyncio.gather(*(some(turns) for _ in range(CALLERS)))
        rate = CALLS / (time.monotonic() - began)
        report("client", before)
        print(f"{rate:,.0f} calls/s with {CALLERS} callers, grpcio {grpc.__version__}")


def main(arguments: list[str]) -> None:
    run = uvloop.run if "--uvloop" in arguments else asyncio.run
    if "serve" in arguments:
        run(serve())
        return
    command = [sys.executable, __file__, *arguments, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        run(call(int(server.stdout.readline())))
        server.stdin.close()
        print(server.stdout.read(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
