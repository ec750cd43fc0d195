"""When a toleration lets a pod past a taint.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import Toleration
from scheduler.cache.table import Taint


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    key, value, effect = taint
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: tuple[str, ...]) -> list[Taint]:
    """The taints of these effects that none of the tolerations lets past."""
    return [
        taint for taint in taints if taint[2] in effects and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]
