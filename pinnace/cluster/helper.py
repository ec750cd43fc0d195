"""A helper process that is told what to do in lines of JSON (pinnace.runtime.process), from the side of whoever tells it.

It runs in a session of its own, so that a Ctrl-C does not reach it before its work is undone, and ends when its stdin does.
"""

import asyncio
import json
import shutil
import sys
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, Self

from pinnace.cluster.errors import ClusterError

_SETPRIV = shutil.which("setpriv")
ANSWER_TIMEOUT = 20.0
"""Seconds. Longer than any helper may take for anything that it is asked."""
END_TIMEOUT = 5.0


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, made to die when this process does, however it ends: for processes that do not look at their stdin. Where
    there is no setpriv (util-linux) they stay when this one is killed."""
    return [_SETPRIV, "--pdeathsig", "KILL", "--", *command] if _SETPRIV else list(command)


class HelperError(ClusterError):
    """The helper refused, did not answer in time, or is gone."""


class Helper:
    """An async context manager around `python -m <module> <arguments>`. Answers come in the order of the requests."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._arguments = arguments
        self._waiting: deque[asyncio.Future[Any]] = deque()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module, *self._arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reading

    def tell(self, do: str, **fields: Any) -> Awaitable[Any]:
        """Sends a request at once; its answer may be waited for, or not. Raises HelperError in the one who waits."""
        assert self._process.stdin
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._reading.done():
            raise self._gone()
        self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._waiting.append(answer)
        return answer

    async def ask(self, do: str, **fields: Any) -> Any:
        """Raises HelperError."""
        answer = self.tell(do, **fields)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise HelperError(f"{self._module} does not answer to {do}") from None

    async def _read(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            answer = self._waiting.popleft()
            if answer.done():
                continue
            if "error" in said:
                _fail(answer, HelperError(said["error"]))
            else:
                answer.set_result(said["answer"])
        for answer in self._waiting:
            _fail(answer, self._gone())

    def _gone(self) -> HelperError:
        return HelperError(f"{self._module} is gone")


def _fail(answer: asyncio.Future[Any], error: HelperError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # whoever does not wait for it does not want to know
