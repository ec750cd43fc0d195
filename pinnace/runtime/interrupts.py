"""Handling of SIGINT when there is nothing to clean up: during imports, which take up to 500 ms, and at the end of a program.

This module has few imports, because its own import can be interrupted as well. The start of Python and of pip's entry point
script is not covered.
"""

import os
import signal
import sys

INTERRUPTED = 130
"""The exit code of a process that SIGINT terminates, as reported by a shell."""


def exit_on_lost_interrupt() -> None:
    """Make interrupts that cannot be caught, such as in a finalizer, end the process silently. By default, Python prints a
    traceback ("Exception ignored in") and continues."""
    before = sys.unraisablehook

    def hook(met: "sys.UnraisableHookArgs") -> None:
        if met.exc_type is KeyboardInterrupt:
            os._exit(INTERRUPTED)
        before(met)

    sys.unraisablehook = hook


def raise_first_interrupt() -> None:
    """Make the first SIGINT raise KeyboardInterrupt, and the second end the process silently."""

    def handle(number: int, frame: object) -> None:
        exit_on_signals_with(INTERRUPTED)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)


def exit_on_signals_with(code: int) -> None:
    """Make SIGINT and SIGTERM end the process immediately with this exit code. Used when only the interpreter's shutdown
    remains."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os._exit(code))


def exit_silently_on_interrupt() -> bool:
    """Make SIGINT end the process silently until another handler is set. Return False if SIGINT is ignored, as for a background
    job of a shell; it remains ignored."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    return heeded
