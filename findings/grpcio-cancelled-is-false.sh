#!/usr/bin/env bash
# expected:   In a handler of grpc.aio whose client has cancelled the call, context.cancelled() is True while the
#             handler's CancelledError is handled, and a write fails with an error of the public API.
# happens:    context.cancelled() and context.done() are False, and a write raises ExecuteBatchError, which is not public.
# versions:   grpcio 1.85.3
# matters:    A handler cannot ask whether the client has left, to tell it from a cancellation by its own server.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.3
cd "$folder"
venv/bin/python - <<'END'
import asyncio
import sys

import grpc


async def main():
    seen, started, ended = {}, asyncio.Event(), asyncio.Event()

    async def handler(request, context):
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.update(cancelled=context.cancelled(), done=context.done())
            try:
                await context.write(b"")
            except Exception as error:
                seen["write"] = type(error).__name__
            raise
        finally:
            ended.set()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_stream_rpc_method_handler(handler)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(20):
        call = channel.unary_stream("/a/b")(b"")
        await started.wait()
        call.cancel()
        await ended.wait()
    await server.stop(None)
    print(", ".join(f"{name}: {value}" for name, value in seen.items()))
    return seen != {"cancelled": False, "done": False, "write": "ExecuteBatchError"}


sys.exit(asyncio.run(main()))
END
