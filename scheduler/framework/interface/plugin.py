"""What all plugins have."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Plugin(Protocol):
    """The class is made with those of the keyword arguments `args` (its own, from the configuration; raise ValueError with the
    field's path when they are wrong) and `handle` (a `Handle`) that its constructor names. A constructor starts nothing.
    """

    @property
    def name(self) -> str:
        """Unique, an attribute of the class; it stands in configurations, metrics and events."""
        ...
