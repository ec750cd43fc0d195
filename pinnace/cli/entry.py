"""Where the installed `pinnace` begins. From here on an interrupt ends it without a word, long before the rest is imported.
Not so while Python itself starts, and the script that pip has made: there is nothing of ours yet.
"""

import os
import signal

_INTERRUPTED = 130
"""ExitCode.INTERRUPTED, which is not imported yet."""


def main() -> None:
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in a shell's background, where it is ignored
    if heeded:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(_INTERRUPTED))
    from pinnace.cli import main as program

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program.main()
