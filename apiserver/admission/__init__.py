"""Admission: what the cluster, rather than the object itself, has to say about a new object.

An ordered chain of small plugins. Each may change the object or refuse it (`Rejected`). They see the caches, do no I/O, and run
before defaults and validation of the resource's own strategy.
"""

from collections.abc import Sequence
from typing import Protocol

from pinnace.api.resources import Object, Resource


class Plugin(Protocol):
    def admit(self, resource: Resource[Object], obj: Object) -> None:
        """Looks at an object that is to be created; may complete it. Raises Rejected."""
        ...


class Chain:
    """The plugins, one after another."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)

    def admit(self, resource: Resource[Object], obj: Object) -> None:
        for plugin in self._plugins:
            plugin.admit(resource, obj)
