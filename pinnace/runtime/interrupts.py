"""An interrupt when there is nothing to tidy up: while a program is imported, which takes up to half a second, and at its end.

Imports next to nothing itself, as that could be interrupted, too. While Python itself starts, and the script that pip has made,
there is nothing of ours yet.
"""

import os
import signal
import sys

INTERRUPTED = 130
"""The exit code, as of whoever dies of SIGINT in a shell."""


def end_if_lost() -> None:
    """From now on an interrupt that Python raises where nothing can catch it, such as in a finalizer, ends the process without
    a word. Otherwise Python prints a traceback ("Exception ignored in") and goes on."""
    before = sys.unraisablehook

    def hook(met: "sys.UnraisableHookArgs") -> None:
        if met.exc_type is KeyboardInterrupt:
            os._exit(INTERRUPTED)
        before(met)

    sys.unraisablehook = hook


def raise_once() -> None:
    """From now on the first interrupt raises KeyboardInterrupt, and the second ends the process without a word."""

    def handle(number: int, frame: object) -> None:
        end_as(INTERRUPTED)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)


def end_as(code: int) -> None:
    """From now on SIGINT and SIGTERM end the process at once, with this exit code: its work is done, and only the interpreter
    is left to be taken down."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os._exit(code))


def end_at_once() -> bool:
    """From now on an interrupt ends the process without a word, until SIGINT has another handler. False: it is ignored, as in
    the background of a shell, and stays so."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    return heeded
