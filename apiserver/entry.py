"""The entry point of `pinnace-apiserver`. Until the event loop runs, SIGINT ends the process without a traceback."""

from pinnace.runtime.interrupts import exit_silently_on_interrupt


def main() -> None:
    exit_silently_on_interrupt()
    from pinnace.apiserver.main import main as program

    program()
