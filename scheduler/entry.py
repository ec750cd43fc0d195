"""Entry point of the installed `pinnace-scheduler`. An interrupt ends the process silently until the event loop runs."""

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from pinnace.scheduler.main import main as program

    program()
