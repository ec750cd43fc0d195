"""The entry point of `pinnace-apiserver`. Until the event loop runs, SIGINT ends the process without a traceback."""

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from pinnace.apiserver.main import main as program

    program()
