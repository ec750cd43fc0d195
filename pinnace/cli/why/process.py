"""Asks `scheduler.explaining`, a process of its own: the scheduler's code is not this program's."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from pinnace.api.explanation import Answer, Explanation, Trouble, Unexplained
from pinnace.api.jsonrecords import Malformed, from_json
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.settings import Settings
from pinnace.client.kubeconfig import HINT

PATIENCE = 50.0
"""Seconds that it may take to list everything. The caller's deadline ends it, too."""


async def ask(settings: Settings, namespace: str, name: str, node: str, file: Path | None) -> Explanation:
    """Raises Failure."""
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
    return understood(said, complaints)


def understood(said: bytes, complaints: bytes) -> Explanation:
    """What the process has written to stdout and stderr. Raises Failure."""
    try:
        answer = from_json(Answer, json.loads(said))
    except Malformed as error:
        raise _bug(str(error)) from None
    except ValueError:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:]
        raise _bug(last[0] if last else "no answer") from None
    if answer.unexplained is not None:
        raise _failure(answer.unexplained)
    if answer.explanation is None:
        raise _bug("no answer")
    return answer.explanation


def _bug(message: str) -> Failure:
    return Failure(f"the explanation failed: {message}", hint="this is a bug: please report it")


def _failure(unexplained: Unexplained) -> Failure:
    match unexplained.kind:
        case Trouble.USAGE:
            return usage(unexplained.error, hint="give the schedulers' configuration with --config FILE")
        case Trouble.NOT_FOUND:
            hint = "`pinnace get pods` lists those of the namespace"
            return Failure(unexplained.error, hint=hint, code=ExitCode.NOT_FOUND)
        case Trouble.UNAVAILABLE:
            return Failure(unexplained.error, hint=HINT, code=ExitCode.UNAVAILABLE)
