"""The entry point of the installed `pinnace`. It handles interrupts before the other modules are imported."""

from pinnace.runtime.interrupts import end_at_once, end_if_lost, raise_once


def main() -> None:
    heeded = end_at_once()
    end_if_lost()
    from pinnace.cli import main as program

    if heeded:
        raise_once()
    program.main()
