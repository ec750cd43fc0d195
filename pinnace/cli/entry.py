"""The entry point of the installed `pinnace`. It handles interrupts before other modules are imported, and hands kubectl's verbs
to kubectl before the modules of our command line are."""

import sys

from pinnace.cli import kubectl
from pinnace.runtime.interrupts import end_at_once, end_if_lost, raise_once


def main() -> None:
    heeded = end_at_once()
    end_if_lost()
    words = kubectl.dispatch(sys.argv[1:])
    from pinnace.cli import main as program

    if heeded:
        raise_once()
    program.main(words)


if __name__ == "__main__":
    main()
