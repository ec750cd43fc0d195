"""What a check finds, and running all of them at once, each with its deadline."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pinnace.cli.terminal.table import one_line

DEADLINE = 8.0
"""Seconds for one check: a little more than the longest of what it asks."""


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, and will not always."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` is what was looked at, `hint` what to do about it."""

    level: Level
    check: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """`look` is a coroutine function; or it blocks, and so has a thread of its own."""

    name: str
    look: "Callable[[], Any]"


def ok(check: str, message: str) -> Finding:
    return Finding(Level.OK, check, message)


def warning(check: str, message: str, hint: str = "") -> Finding:
    return Finding(Level.WARNING, check, message, hint)


def problem(check: str, message: str, hint: str = "") -> Finding:
    return Finding(Level.PROBLEM, check, message, hint)


def text(findings: Sequence[Finding]) -> str:
    """A line for each; and one below it for what to do."""
    lines = []
    for each in findings:
        lines.append(f"{each.level:<9}{each.check:<15}{one_line(each.message)}")
        if each.hint:
            lines.append(f"{'':<24}hint: {one_line(each.hint)}")
    return "".join(f"{line}\n" for line in lines)


async def run(checks: Sequence[Check], deadline: float = DEADLINE) -> list[Finding]:
    """What all of them find, in their order. One that fails, or does not end in time, has found that."""
    found = await asyncio.gather(*(_run(check, deadline) for check in checks))
    return [finding for each in found for finding in each]


async def _run(check: Check, deadline: float) -> Sequence[Finding]:
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            return await (check.look() if inspect.iscoroutinefunction(check.look) else _in_thread(check.look))
    except TimeoutError as error:
        if not limit.expired():
            return [problem(check.name, f"could not be checked: {error or 'no answer in time'}")]
        return [problem(check.name, f"could not be checked in {deadline:g} s")]
    except Exception as error:
        return [problem(check.name, f"could not be checked: {type(error).__name__}: {error}")]


async def _in_thread(look: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    """In a thread that the end of the program does not wait for: a file system that hangs may keep it for ever."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Finding]] = loop.create_future()

    def tell(found: Sequence[Finding] | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def body() -> None:
        found, failure = None, None
        try:
            found = look()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=body, daemon=True).start()
    return await answer
