"""The entry point of the installed `pinnace-kubelet`. Until the event loop runs, an interrupt exits without a traceback."""

from pinnace.runtime.interrupts import end_at_once


def main() -> None:
    end_at_once()
    from pinnace.kubelet.main import main as program

    program()
