"""How a command can end: exit codes, and the errors that verbs raise. How they are told is in errors.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes that the project promises."""

    OK = 0
    SERVER = 1
    """The server failed or refused for a reason without a code of its own; or a bug."""
    DIFFERENT = 1
    """`diff` found something; what goes wrong with it has a code of 2 or more."""
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    INVALID = 5
    UNAVAILABLE = 6
    """No answer, or not in time."""
    OUTPUT = 7
    """What was found or done could not be written to stdout: the disk is full, for example."""
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
    ExitCode.OUTPUT,
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


def first(error: BaseException) -> BaseException:
    """The error that ended a group of tasks: the others were cancelled because of it."""
    return first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
