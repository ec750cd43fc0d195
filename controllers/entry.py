"""Entry point of the installed `pinnace-controllers`. An interrupt ends the process silently until the event loop runs."""

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from pinnace.controllers.main import main as program

    program()
