"""Asks `scheduler.explaining`, a process of its own: the scheduler's code is not this program's."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from base64 import b64decode

from google.rpc.status_pb2 import Status

from pinnace.api.records import Answer, Explanation, Malformed, Trouble, Unexplained, from_json
from pinnace.cli.local.schedulers import Given
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.settings import Settings
from pinnace.client.config import HINT
from pinnace.client.errors import ApiError, from_status

PATIENCE = 50.0
"""Seconds that it may take to list everything. The caller's deadline ends it, too."""


async def ask(settings: Settings, namespace: str, name: str, node: str, given: Given, kept: Given) -> Explanation:
    """`kept`: that of the schedulers of the local cluster, if there is one. Raises Failure, or the ApiError of a call that it
    made."""
    arguments = ["--timeout", str(PATIENCE), "--node", node]
    for flag, value in (("--server", settings.server), ("--context", settings.context)):
        arguments += [flag, value] if value else []
    arguments += ["--config", given.config, *(f"--plugin={each}" for each in given.plugins)]
    if kept.config or kept.plugins:
        plugins = (f"--kept-plugin={each}" for each in kept.plugins)
        arguments += ["--kept", kept.source, "--kept-config", kept.config, *plugins]
    python_path = ":".join(filter(None, (kept.python_path, os.environ.get("PYTHONPATH", ""))))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler.explaining", *arguments, "--", namespace, name,
        stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE,
        env=os.environ | ({"PYTHONPATH": python_path} if python_path else {}),
    )  # fmt: skip
    try:
        said, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return understood(said, complaints)


def understood(said: bytes, complaints: bytes) -> Explanation:
    """What the process has written to stdout and stderr. Raises as `ask`."""
    try:
        answer = from_json(Answer, json.loads(said))
    except Malformed as error:
        raise _bug(str(error)) from None
    except ValueError:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:]
        raise _bug(last[0] if last else "no answer") from None
    if answer.unexplained is not None:
        raise _why_not(answer.unexplained)
    if answer.explanation is None:
        raise _bug("no answer")
    return answer.explanation


def _bug(message: str) -> Failure:
    return Failure(f"the explanation failed: {message}", hint="this is a bug: please report it")


def _why_not(unexplained: Unexplained) -> Failure | ApiError:
    match unexplained.kind:
        case Trouble.USAGE:
            return usage(unexplained.error, hint="give the scheduler's configuration with --config FILE and --plugin")
        case Trouble.REFUSED:
            return from_status(Status.FromString(b64decode(unexplained.status)))
        case Trouble.TOO_SLOW:
            return Failure(unexplained.error, hint=HINT, code=ExitCode.UNAVAILABLE)
