"""The taints that keep a pod away."""

from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import Toleration
from pinnace.api.tolerations import tolerates
from scheduler.cache.table import Taint


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: tuple[str, ...]) -> list[Taint]:
    """The taints of these effects that none of the tolerations lets past."""
    return [
        taint
        for taint in taints
        if taint[2] in effects and not any(tolerates(toleration, *taint) for toleration in tolerations)
    ]
