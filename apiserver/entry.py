"""Where the installed `pinnace-apiserver` begins. An interrupt ends it without a word until its event loop runs."""

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from apiserver.main import main as program

    program()
