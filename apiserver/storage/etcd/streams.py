"""Writing to gRPC streams that may have failed before they have begun."""

import asyncio
from typing import Any


async def send(call: Any, request: Any) -> None:
    """Writes, or returns when the call has ended first: `read` tells why. By itself grpcio waits for the metadata to have
    been sent, for ever when that fails, whatever the call's deadline (`_StreamRequestMixin._write`)."""
    writing = asyncio.ensure_future(call.write(request))
    ended = asyncio.ensure_future(call.code())
    try:
        await asyncio.wait((writing, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        writing.cancel()
        ended.cancel()
        await asyncio.gather(writing, ended, return_exceptions=True)
