"""Conversion of errors into messages on stderr and exit codes.

An expected error (an error of the server, an invalid flag, an invalid manifest) is one line and a hint; each of several
violations has its own line. Unexpected errors print a traceback. With -v, every error does.
"""

import os
import sys
import traceback
from collections.abc import Callable

import click

from pinnace.cli.outcomes import ErrorReport, ExitCode, Failure, ReaderGone, Reported
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_error_line

LONGEST = 500
"""Maximum length of a message of click, in characters."""


def run_guarded(command: Callable[[], object], settings: Settings) -> int:
    """Run a command and return its exit code: the result of the command, or the code of its error, which is printed to
    stderr."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.OK
    except (BrokenPipeError, ReaderGone):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 (a target for the flush at exit)
        return ExitCode.BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except Exception as error:
        return report_error(error, settings)


def report_error(error: Exception, settings: Settings) -> ExitCode:
    """Print the error, unless it is already reported, and return its exit code."""
    if isinstance(error, Reported):
        return error.code
    report = explain_error(error)
    if report is None or settings.verbose:
        traceback.print_exception(error)
    if report is None:
        report = ErrorReport(
            (f"unexpected {type(error).__name__}: {error}",), "this is a bug: please report it", ExitCode.SERVER
        )
    report_to_stderr(report)
    return report.code


def report_to_stderr(report: ErrorReport, where: str = "") -> None:
    """Print a report to stderr. `where` is a position, such as "pods.yaml:14", or an object."""
    print_report_lines(report, where)
    print_hint(report.hint)


def print_report_lines(report: ErrorReport, where: str = "") -> None:
    """Print the lines of a report without its hint."""
    place = f"{where}: " if where else ""
    first, later = (place, place) if report.speaks else (f"error: {place}", "  ")
    for number, line in enumerate(report.lines):
        print_error_line((later if number else first) + line)


def print_hint(hint: str) -> None:
    if hint:
        print_error_line(f"hint: {hint}")


def explain_error(error: BaseException) -> ErrorReport | None:
    """Return the report of an expected error; None for an unexpected one."""
    match error:
        case Failure():
            return error.report
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "pinnace"
            return ErrorReport(
                (_format_usage_error(error.format_message()),), f"`{command} --help` shows the usage", ExitCode.USAGE
            )
        case click.ClickException():
            return ErrorReport((_format_usage_error(error.format_message()),), "", ExitCode.USAGE)
        case PermissionError() if error.filename is not None:
            return ErrorReport((f"{error.filename} cannot be used: {error.strerror}",), "", ExitCode.USAGE)
        case TimeoutError():
            return ErrorReport((str(error) or "timed out",), "try again, or set a longer --timeout", ExitCode.UNAVAILABLE)
    from pinnace.cli import client_errors  # imports protobuf, which usage errors do not need

    return client_errors.explain_client_error(error)


def _format_usage_error(text: str) -> str:
    """Return click's message as one line of at most LONGEST characters, with a lowercase initial and no full stop. The message
    can contain arguments of any length."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[:LONGEST]}..."
    return (line[:1].lower() + line[1:]).removesuffix(".")
