"""SIGINT while there is nothing to clean up: during imports, which take up to half a second, and at the end of a program.

This module imports as little as possible, because its own import can be interrupted as well. The start of Python and of the
script that pip generates is not covered.
"""

import os
import signal
import sys

INTERRUPTED = 130
"""The exit code of a program that SIGINT ends, as a shell reports it."""


def end_if_lost() -> None:
    """From now on an interrupt that Python raises where nothing can catch it, such as in a finalizer, ends the process
    silently. By default Python prints a traceback ("Exception ignored in") and continues."""
    before = sys.unraisablehook

    def hook(met: "sys.UnraisableHookArgs") -> None:
        if met.exc_type is KeyboardInterrupt:
            os._exit(INTERRUPTED)
        before(met)

    sys.unraisablehook = hook


def raise_once() -> None:
    """From now on the first SIGINT raises KeyboardInterrupt, and the second ends the process silently."""

    def handle(number: int, frame: object) -> None:
        end_as(INTERRUPTED)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)


def end_as(code: int) -> None:
    """From now on SIGINT and SIGTERM end the process at once, with this exit code: its work is done, and only the interpreter
    has yet to shut down."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os._exit(code))


def end_at_once() -> bool:
    """From now on SIGINT ends the process silently, until SIGINT gets another handler. Returns False if SIGINT is ignored, as
    for a background job of a shell; it stays ignored then."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    return heeded
