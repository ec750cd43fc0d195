"""Entry point of the installed `pinnace-proxy`. An interrupt ends the process silently until the event loop runs."""

from pinnace.runtime.interrupts import exit_silently_on_interrupt


def main() -> None:
    exit_silently_on_interrupt()
    from pinnace.proxy.main import main as program

    program()
