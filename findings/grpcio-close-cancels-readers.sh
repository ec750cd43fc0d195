#!/usr/bin/env bash
# expected:   When a channel of grpc.aio is closed, a task that reads one of its calls gets an AioRpcError, or the end of
#             the stream.
# happens:    It gets asyncio.CancelledError, although nobody has cancelled the task (task.cancelling() is 0).
# versions:   grpcio 1.85.3
# matters:    CancelledError is no Exception: it passes `except Exception`, and a task group or supervisor takes it for a
#             cancellation of the task, so that the task ends silently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.3
cd "$folder"
venv/bin/python - <<'END'
import asyncio
import sys
from contextlib import suppress

import grpc


async def main():
    async def handler(request, context):
        yield b"first"
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_stream_rpc_method_handler(handler)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    call = channel.unary_stream("/a/b")(b"")
    await call.read()

    async def read():
        try:
            return f"returned {await call.read()!r}", 0
        except BaseException as error:
            return type(error).__name__, asyncio.current_task().cancelling()

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    await channel.close()
    async with asyncio.timeout(20):
        result, cancelling = await reading
    await server.stop(None)
    print(f"the reader: {result}, cancellations of its task: {cancelling}")
    return (result, cancelling) != ("CancelledError", 0)


sys.exit(asyncio.run(main()))
END
