"""Entry point of the installed `pinnace-controllers`. An interrupt ends the process silently until the event loop runs."""

from pinnace.runtime.interrupts import exit_silently_on_interrupt


def main() -> None:
    exit_silently_on_interrupt()
    from pinnace.controllers.main import main as program

    program()
