"""Where the installed `pinnace` begins. From here on an interrupt ends it without a word, long before the rest is imported."""

import signal

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    heeded = end_at_once()
    from pinnace.cli import main as program

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program.main()
