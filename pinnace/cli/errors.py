"""How a command line ends when it does not end well: the one place where errors become text and exit codes.

What is expected (a refusal of the server, a wrong flag, a manifest with mistakes) is one line and a hint on stderr; a list of
violations has one line each. A traceback is shown for what is not expected, and with -v.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import click

from pinnace.cli.console import err
from pinnace.cli.settings import Settings


class ExitCode(IntEnum):
    """The exit codes that the project promises."""

    OK = 0
    SERVER = 1
    """The server failed or refused for a reason without a code of its own; or a bug."""
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    INVALID = 5
    UNAVAILABLE = 6
    """No answer, or not in time."""
    VERDICT = 10
    """A check (demo, bench) found that what must hold did not."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """The reader of stdout went away, as in `| head`: what the shell shows for any such program."""


SEVERITY = (
    ExitCode.OK,
    ExitCode.USAGE,
    ExitCode.NOT_FOUND,
    ExitCode.CONFLICT,
    ExitCode.INVALID,
    ExitCode.UNAVAILABLE,
    ExitCode.SERVER,
)


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """The exit code of a command of which parts failed."""
    return max(codes, key=SEVERITY.index, default=ExitCode.OK)


class Failure(Exception):
    """An expected end of a verb: what is wrong, the way out, and the exit code."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.SERVER, details: Sequence[str] = ()) -> None:
        """`details`: further lines, one for each thing that is wrong."""
        super().__init__(message)
        self.report = Report((message, *details), hint, code)


class Reported(Exception):
    """The verb has told what failed already; only the exit code is left."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(f"exit code {int(code)}")
        self.code = code


class ReaderGone(Exception):
    """The reader of stdout went away. (A BrokenPipeError that passes through click becomes its own exit code.)"""


@dataclass(frozen=True, slots=True)
class Report:
    """An error as a person meets it."""

    lines: tuple[str, ...]
    """What is wrong; the first line is enough to know, the others name each thing when there are several."""
    hint: str
    code: ExitCode
    speaks: bool = False
    """The lines say themselves whose error this is, or where, such as "Error from server" or "pods.yaml:14"."""


def usage(message: str, hint: str = "") -> Failure:
    return Failure(message, hint=hint, code=ExitCode.USAGE)


def guarded(command: Callable[[], object], settings: Settings) -> int:
    """Runs a command and returns its exit code: what it returns, or that of the error it raised, which is told on stderr."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.OK
    except (BrokenPipeError, ReaderGone):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 (the flush at exit must have somewhere to go)
        return ExitCode.BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except Reported as reported:
        return reported.code
    except Exception as error:
        report = explain(error)
        if report is None or settings.verbose:
            traceback.print_exc()
        if report is None:
            report = Report(
                (f"unexpected {type(error).__name__}: {error}",), "this is a bug: please report it", ExitCode.SERVER
            )
        tell(report)
        return report.code


def tell(report: Report, where: str = "") -> None:
    """Prints a report to stderr. `where` is a place, such as "pods.yaml:14", or an object."""
    tell_lines(report, where)
    tell_hint(report.hint)


def tell_lines(report: Report, where: str = "") -> None:
    """Prints what is wrong, without the way out."""
    first, later = ("error: ", "  ") if not (where or report.speaks) else (f"{where}: ",) * 2 if where else ("", "")
    for number, line in enumerate(report.lines):
        err((later if number else first) + line)


def tell_hint(hint: str) -> None:
    if hint:
        err(f"hint: {hint}")


def explain(error: BaseException) -> Report | None:
    """None: the error is not an expected one."""
    match error:
        case Failure():
            return error.report
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "pinnace"
            return Report((_sentence(error.format_message()),), f"`{command} --help` shows how it is used", ExitCode.USAGE)
        case click.ClickException():
            return Report((_sentence(error.format_message()),), "", ExitCode.USAGE)
        case TimeoutError():
            return Report((str(error) or "timed out",), "try again, or give it more time with --timeout", ExitCode.UNAVAILABLE)
    from pinnace.cli import refusals  # imports protobuf: only once something else than usage is wrong

    return refusals.explain(error)


def _sentence(text: str) -> str:
    """Click's message in our style: one line, no capital at the beginning, no full stop at the end."""
    line = " ".join(text.split())
    return (line[:1].lower() + line[1:]).removesuffix(".")
