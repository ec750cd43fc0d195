"""Writes to streaming calls of grpc.aio that do not discard what the server has sent.

`StreamStreamCall.write` fails if the server has just ended the call, which a client cannot foresee. It then sets the status of
the call to INTERNAL ("Internal error from Core"), so that responses which have arrived, such as the exit code of a command,
and the server's status cannot be read any more (grpcio 1.85.3, grpc/aio/_call.py).
"""

import asyncio
from typing import Any

import grpc.aio
from google.protobuf.message import Message


async def write_request(call: Any, request: Message) -> None:
    """Write a request to a StreamStreamCall. Has no effect if the call has ended: `read` returns the remaining responses, and
    raises the server's status. Calls of other channels, such as simulated ones, write themselves."""
    if not isinstance(call, grpc.aio.StreamStreamCall):
        await call.write(request)
        return
    if call.done():
        return
    try:
        await call._metadata_sent.wait()
        if not call.done():
            await call._cython_call.send_serialized_message(request.SerializeToString())
    except grpc.aio.InternalError:  # the server has ended the call
        pass
    except asyncio.CancelledError:  # as StreamStreamCall.write does
        call.cancel()
        raise
