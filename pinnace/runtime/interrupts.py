"""An interrupt before there is anything to be tidied up: while a program is still imported, which takes up to half a second.

Imports next to nothing itself, as that could be interrupted, too. While Python itself starts, and the script that pip has made,
there is nothing of ours yet.
"""

import os
import signal

INTERRUPTED = 130
"""The exit code, as of whoever dies of SIGINT in a shell."""


def end_at_once() -> bool:
    """From now on an interrupt ends the process without a word, until SIGINT has another handler. False: it is ignored, as in
    the background of a shell, and stays so."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    return heeded
