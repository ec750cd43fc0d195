"""The container of the image "pause": waits for SIGTERM or SIGINT, and ends with code 0. Standard library only."""

import signal

ENDING = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    signal.sigwait(ENDING)


if __name__ == "__main__":
    main()
