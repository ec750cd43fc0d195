"""How long work tells a person where it is."""

from typing import Protocol


class Progress(Protocol):
    def waiting(self, what: str) -> None:
        """Replaces what was being waited for."""
        ...

    def done(self, what: str) -> None:
        """One step is finished."""
        ...

    def warn(self, what: str) -> None:
        """All goes on, but not as one may think."""
        ...


class Silent:
    def waiting(self, what: str) -> None:
        pass

    def done(self, what: str) -> None:
        pass

    def warn(self, what: str) -> None:
        pass


SILENT = Silent()
