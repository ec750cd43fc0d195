"""What all plugins have, and what those have that tell the defaults of their arguments.

Pods, nodes and other objects are shown to plugins to read (pinnace.api.readonly): `pod.pod.metadata.labels["missing"]` raises
KeyError, and nothing can be set. `copy.deepcopy(pod.pod)` makes a Pod of one's own.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Plugin(Protocol):
    """The class is made with those of the keyword arguments `args` (its own, from the configuration; raise ValueError with the
    field's path when they are wrong) and `handle` (a `Handle`) that its constructor names. A constructor starts nothing.
    """

    @property
    def name(self) -> str:
        """Unique, an attribute of the class; it stands in configurations, metrics and events."""
        ...


@runtime_checkable
class CompletesArgs(Protocol):
    """A plugin whose class knows what its arguments are when they are left out: a configuration is shown with them."""

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their defaults filled in. Raises ValueError, as the constructor does."""
        ...
