"""A worker process for conversions that would hold the event loop: large YAML and JSON bodies, and lists as YAML.

    convert --small--> here
       '----large--> queue of the user --in turns--> worker process (lower priority) --> result
                                                        '--TIMEOUT--> killed, 504

The worker starts with the first large conversion, which takes about half a second, and ends when it is idle for IDLE seconds,
because it needs as much memory as half a gateway. Users take turns, so the conversions of one user delay those of another by
one conversion at most.
"""

import asyncio
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from pinnace.gateway.flow import too_many_requests
from pinnace.gateway.http import ApiStatus

LARGE_YAML = 16 << 10
"""The size in bytes from which YAML is converted in the worker: the parser reads 1 to 2 MB/s."""
LARGE_JSON = 64 << 10
"""The size in bytes from which JSON is, unless it has few values, such as a Secret with one large value."""
MAX_VALUES = 2_000
"""The number of commas and opening brackets up to which large JSON is converted here. A value takes up to 4 us."""
MAX_QUEUED = 16
"""The maximum number of waiting conversions of a user."""
IDLE = 60.0
TIMEOUT = 30.0
NICE = 5
"""The priority of the worker below that of the gateway."""
P = ParamSpec("P")
R = TypeVar("R")
_SIZE = 8


def is_large_json(body: bytes) -> bool:
    """Return whether the conversion of JSON takes more than some milliseconds."""
    return len(body) > LARGE_JSON and body.count(b",") + body.count(b"[") + body.count(b"{") > MAX_VALUES


class _ConversionJob:
    __slots__ = ("call", "result")

    def __init__(self, call: bytes) -> None:
        self.call = call
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class ConversionWorker:
    """The worker process of a gateway. `run` must run until shutdown."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[_ConversionJob]] = {}
        """The waiting jobs of each user. The first user is served next."""
        self._arrived = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    async def convert(self, user: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function of a module in the worker. Arguments and result are pickled. Raises what the function raises, and
        ApiStatus: 429 if too many conversions of the user wait, 504 if it takes too long, 503 if the worker dies."""
        queue = self._queues.setdefault(user, deque())
        if len(queue) >= MAX_QUEUED:
            raise too_many_requests(f'{len(queue)} large conversions of user "{user}" wait')
        job = _ConversionJob(pickle.dumps((function, args, kwargs)))
        queue.append(job)
        self._arrived.set()
        try:
            result: R = await job.result
            return result
        finally:
            del job  # an error of its result refers to this frame: the data would live until the garbage collection

    async def run(self) -> None:
        try:
            while True:
                await self._run_next_job()
        finally:
            await self._stop()

    async def _run_next_job(self) -> None:
        """Do the next conversion, or stop the worker if there is none for IDLE seconds."""
        try:
            async with asyncio.timeout(IDLE if self._process is not None else None):
                while (job := self._next_job()) is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            await self._stop()
        else:
            await self._convert_job(job)

    def _next_job(self) -> _ConversionJob | None:
        while self._queues:
            user = next(iter(self._queues))
            queue = self._queues.pop(user)
            job = queue.popleft() if queue else None
            if queue:
                self._queues[user] = queue  # behind the other users
            if job is not None and not job.result.done():
                return job
        return None

    async def _convert_job(self, job: _ConversionJob) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                process = self._process or await self._start()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(len(job.call).to_bytes(_SIZE, "big") + job.call)
                await process.stdin.drain()
                size = int.from_bytes(await process.stdout.readexactly(_SIZE), "big")
                data = await process.stdout.readexactly(size)
        except TimeoutError:
            self._fail_job(job, ApiStatus(504, "Timeout", f"Timeout: the conversion took more than {TIMEOUT:g} s"))
            await self._stop()
        except (OSError, asyncio.IncompleteReadError):
            self._fail_job(job, ApiStatus(503, "ServiceUnavailable", "the conversion failed: try again", retry_after=1))
            await self._stop()
        except BaseException:
            job.result.cancel()
            raise
        else:
            result, error = pickle.loads(data)
            if error is not None:
                self._fail_job(job, error)
            elif not job.result.done():
                job.result.set_result(result)

    @staticmethod
    def _fail_job(job: _ConversionJob, error: BaseException) -> None:
        if not job.result.done():
            job.result.set_exception(error)

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pinnace.gateway.workers", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self._process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def main() -> None:
    """Serve conversions on stdin and stdout until stdin ends, which it does when the gateway dies."""
    os.nice(NICE)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while len(size := source.read(_SIZE)) == _SIZE:
        function, args, kwargs = pickle.loads(source.read(int.from_bytes(size, "big")))
        try:
            outcome: tuple[Any, BaseException | None] = (function(*args, **kwargs), None)
        except Exception as error:
            outcome = (None, error)
        data = pickle.dumps(outcome)
        sink.write(len(data).to_bytes(_SIZE, "big") + data)
        sink.flush()


if __name__ == "__main__":
    main()
