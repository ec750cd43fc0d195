#!/usr/bin/env bash
# expected:   The server of a bidirectional call sends a response, then ends the call with a status of its own. The client,
#             which is still writing, reads the response and gets this status.
# happens:    If a write of grpc.aio meets the end of the call, the call ends on the client's side with INTERNAL, "Internal error
#             from Core". The status of the server is lost.
# versions:   grpcio 1.85.3
# matters:    A client cannot know that a server is about to end a call. A refusal looks like a fault of the server, and a relay of
#             connections reports an error for each one that the far end closes while the near end writes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.3
cd "$folder"
venv/bin/python - <<'END'
import asyncio
import sys
from collections import Counter
from contextlib import suppress

import grpc

CALLS = 200


async def main():
    async def handler(requests, context):
        await anext(requests)
        yield b"response"
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "the end")

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.stream_stream_rpc_method_handler(handler)

    async def write(call):
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while not call.done():
                await call.write(b"x" * 1000)
                await asyncio.sleep(0)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    seen = Counter()
    async with asyncio.timeout(60), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(CALLS):
            call = channel.stream_stream("/a/b")()
            writing = asyncio.ensure_future(write(call))
            read = 0
            try:
                while await call.read() is not grpc.aio.EOF:
                    read += 1
            except grpc.aio.AioRpcError as error:
                seen[f"{read} responses, {error.code().name}, {error.details()}"] += 1
            await writing
    await server.stop(None)
    for outcome, count in seen.most_common():
        print(f"{count} of {CALLS} calls: {outcome}")
    return not any("INTERNAL, Internal error from Core" in outcome for outcome in seen)


sys.exit(asyncio.run(main()))
END
