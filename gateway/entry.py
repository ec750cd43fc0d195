"""The entry point of `pinnace-gateway`. An interrupt ends the process silently until its event loop runs."""

from pinnace.runtime.interrupts import exit_silently_on_interrupt


def main() -> None:
    exit_silently_on_interrupt()
    from pinnace.gateway.main import main as program

    program()
