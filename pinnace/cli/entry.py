"""Where the installed `pinnace` begins. From here on an interrupt ends it without a word, long before the rest is imported."""

from pinnace.runtime.interrupts import end_at_once, end_if_lost, raise_once


def main() -> None:
    heeded = end_at_once()
    end_if_lost()
    from pinnace.cli import main as program

    if heeded:
        raise_once()
    program.main()
