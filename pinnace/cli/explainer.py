"""Asks `scheduler.explaining`, a process of its own: the scheduler's code is not this program's."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.settings import Settings
from pinnace.client.config import HINT

PATIENCE = 50.0
"""Seconds that it may take to list everything. The caller's deadline ends it, too."""


async def ask(settings: Settings, namespace: str, name: str, node: str, file: Path | None) -> dict[str, Any]:
    """The explanation, as scheduler.explain.model has it. Raises Failure."""
    arguments = ["--timeout", str(PATIENCE), "--node", node]
    for flag, value in (("--server", settings.server), ("--context", settings.context)):
        arguments += [flag, value] if value else []
    if file is not None:
        arguments += ["--config", str(file)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler.explaining", *arguments, "--", namespace, name,
        stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    try:
        said, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        answer = json.loads(said)
    except ValueError:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:]
        raise Failure(
            f"the explanation failed: {last[0] if last else 'no answer'}", hint="this is a bug: please report it"
        ) from None
    if "error" in answer:
        raise _failure(answer["error"], answer["kind"])
    found: dict[str, Any] = answer["explanation"]
    return found


def _failure(message: str, kind: str) -> Failure:
    if kind == "usage":
        return usage(message, hint="give the schedulers' configuration with --config FILE")
    if kind == "not found":
        return Failure(message, hint="`pinnace get pods` lists those of the namespace", code=ExitCode.NOT_FOUND)
    return Failure(message, hint=HINT, code=ExitCode.UNAVAILABLE)
