"""Logs and exec of the process runtime, from what is in the folders: implements kubelet.streams.Streams.

Nothing here asks the runtime, so that the log of a pod that is over can be read, too, and while it is being written.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from kubelet.process import command, files, logs, shims
from kubelet.process.crilog import stamp
from kubelet.process.logs import Wanted
from kubelet.process.plan import instead
from kubelet.process.root import Root
from kubelet.streams import Unstreamable
from pinnace.api.pods_pb2 import ExecResponse, ExecStart, LogOptions, LogsRequest
from pinnace.api.status import Code


class ProcessStreams:
    def __init__(self, root: Root) -> None:
        self._root = root

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        options = request.options
        attempts = self._root.attempts(request.uid, options.container)
        if options.previous and len(attempts) < 2:
            raise Unstreamable(
                Code.INVALID_ARGUMENT,
                f'previous terminated container "{options.container}" in pod "{request.name}" not found',
            )
        if not attempts:
            raise Unstreamable(
                Code.INVALID_ARGUMENT, f'container "{options.container}" in pod "{request.name}" is waiting to start'
            )
        attempt = attempts[-2 if options.previous else -1]
        async with aclosing(logs.read(attempt / files.LOG, _wanted(options), lambda: not shims.lives(attempt))) as chunks:
            async for data in chunks:
                yield data

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        attempts = self._root.attempts(start.uid, start.container)
        if not attempts or files.read(str(attempts[-1] / files.RUNNING)) is None or not shims.lives(attempts[-1]):
            raise Unstreamable(Code.INVALID_ARGUMENT, f'container "{start.container}" in pod "{start.name}" is not running')
        plan = instead(files.read(str(attempts[-1] / files.PLAN)), start.command)
        try:
            async with aclosing(command.run(plan, stdin if start.stdin else None)) as responses:
                async for response in responses:
                    yield response
        except OSError as error:
            raise Unstreamable(Code.UNAVAILABLE, f"the command cannot be started: {error}") from error


def _wanted(options: LogOptions) -> Wanted:
    since = ""
    if options.HasField("sinceSeconds"):
        since = stamp(time.time_ns() - options.sinceSeconds * 10**9)
    elif options.HasField("sinceTime"):
        since = stamp(options.sinceTime.seconds * 10**9 + options.sinceTime.nanos)
    return Wanted(
        tail=options.tailLines if options.HasField("tailLines") else None,
        since=since,
        timestamps=options.timestamps,
        limit=options.limitBytes if options.HasField("limitBytes") else None,
        follow=options.follow,
    )
