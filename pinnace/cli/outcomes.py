"""Exit codes, and the errors that verbs raise."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes, which are part of the interface."""

    OK = 0
    SERVER = 1
    """An error of the server without a code of its own, or a bug."""
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    INVALID = 5
    UNAVAILABLE = 6
    """No response, or none before the deadline."""
    OUTPUT = 7
    """The output could not be written to stdout, for example because the disk is full."""
    VERDICT = 10
    """A check (demo, bench) failed."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """The reader closed stdout, as in `| head`: the code that a shell reports for SIGPIPE."""


SEVERITY = (
    ExitCode.OK,
    ExitCode.USAGE,
    ExitCode.NOT_FOUND,
    ExitCode.CONFLICT,
    ExitCode.INVALID,
    ExitCode.UNAVAILABLE,
    ExitCode.OUTPUT,
    ExitCode.SERVER,
)


def worst_exit_code(codes: Sequence[ExitCode]) -> ExitCode:
    """Return the exit code of a command if several items failed."""
    return max(codes, key=SEVERITY.index, default=ExitCode.OK)


class Failure(Exception):
    """An expected error of a verb, with a message, a hint and an exit code."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.SERVER, details: Sequence[str] = ()) -> None:
        """`details` are additional lines, one for each problem."""
        super().__init__(message)
        self.report = ErrorReport((message, *details), hint, code)


class Reported(Exception):
    """The verb has already printed its errors; only the exit code remains."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(f"exit code {int(code)}")
        self.code = code


class ReaderGone(Exception):
    """The reader of stdout closed it. click would convert a BrokenPipeError into an exit code of its own."""


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error in the form in which it is printed."""

    lines: tuple[str, ...]
    """The first line is the message; further lines name the individual problems."""
    hint: str
    code: ExitCode
    speaks: bool = False
    """The lines already contain the source of the error, such as "Error from server" or "pods.yaml:14"."""


def usage_failure(message: str, hint: str = "") -> Failure:
    return Failure(message, hint=hint, code=ExitCode.USAGE)


def first_error(error: BaseException) -> BaseException:
    """Return the error that ended a group of tasks. The other tasks were cancelled because of it."""
    return first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
