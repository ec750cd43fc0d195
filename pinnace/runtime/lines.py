"""A process that does as it is told on stdin: a JSON object a line in, one a line out, in order. The end of stdin is its end:
it never outlives whoever started it, however that one ends.

    {"do": "compact", "revision": 812}  ->  {"answer": null}   or   {"error": "required revision has been compacted"}
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

MAX_LINE = 1 << 20


class Refused(Exception):
    """A request that cannot be met; the text goes back as the error."""


Handler = Callable[..., Awaitable[Any]]


async def serve(handlers: Mapping[str, Handler]) -> None:
    """Answers requests, one at a time, until stdin ends. A handler gets the other fields of its request by name."""
    reader = asyncio.StreamReader(MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        try:
            answer = {"answer": await handlers[request.pop("do")](**request)}
        except Refused as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
