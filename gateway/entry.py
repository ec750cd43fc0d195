"""The entry point of `pinnace-gateway`. An interrupt ends the process silently until its event loop runs."""

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from pinnace.gateway.main import main as program

    program()
