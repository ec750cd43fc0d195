"""How a command line ends when it does not end well: the one place where errors become text and exit codes.

What is expected (a refusal of the server, a wrong flag, a manifest with mistakes) is one line and a hint on stderr; a list of
violations has one line each. A traceback is shown for what is not expected, and with -v.
"""

import os
import sys
import traceback
from collections.abc import Callable

import click

from pinnace.cli.outcomes import ExitCode, Failure, ReaderGone, Report, Reported
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import err

LONGEST = 500
"""Characters of a message."""


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
    except Exception as error:
        return told(error, settings)


def told(error: Exception, settings: Settings) -> ExitCode:
    """Tells the error, unless that was done, and returns its exit code."""
    if isinstance(error, Reported):
        return error.code
    report = explain(error)
    if report is None or settings.verbose:
        traceback.print_exception(error)
    if report is None:
        report = Report((f"unexpected {type(error).__name__}: {error}",), "this is a bug: please report it", ExitCode.SERVER)
    tell(report)
    return report.code


def tell(report: Report, where: str = "") -> None:
    """Prints a report to stderr. `where` is a place, such as "pods.yaml:14", or an object."""
    tell_lines(report, where)
    tell_hint(report.hint)


def tell_lines(report: Report, where: str = "") -> None:
    """Prints what is wrong, without the way out."""
    place = f"{where}: " if where else ""
    first, later = (place, place) if report.speaks else (f"error: {place}", "  ")
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
    from pinnace.cli import client_errors  # imports protobuf: only once something else than usage is wrong

    return client_errors.explain(error)


def _sentence(text: str) -> str:
    """Click's message in our style: one line, no capital at the beginning, no full stop at the end. It may hold all of what
    somebody has written."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[:LONGEST]}..."
    return (line[:1].lower() + line[1:]).removesuffix(".")
