"""The entry point of the installed `pinnace-kubelet`. Until the event loop runs, an interrupt exits without a traceback."""

from pinnace.runtime.interrupts import exit_silently_on_interrupt


def main() -> None:
    exit_silently_on_interrupt()
    from pinnace.kubelet.main import main as program

    program()
