"""When a toleration lets a pod past a taint, and which taints send pods away that are there.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import Node, Taint, Toleration

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Of taints."""


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """The last three are the taint's. For how long does not matter here."""
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


class Tolerations:
    """Many of them, to be asked about many taints: an answer does not cost more because there are more tolerations."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._any_value: set[tuple[str, str]] = set()
        """(key, effect); an empty one stands for all."""
        self._one_value: set[tuple[str, str, str]] = set()
        """(key, effect, value)."""
        for each in tolerations:
            if each.operator == "Exists":
                self._any_value.add((each.key, each.effect))
            elif each.operator in ("", "Equal"):
                self._one_value.add((each.key, each.effect, each.value))

    def tolerate(self, key: str, value: str, effect: str) -> bool:
        """As `tolerates`, of any of them."""
        places = ((key, effect), (key, ""), ("", effect), ("", ""))
        if self._any_value and not self._any_value.isdisjoint(places):
            return True
        return bool(self._one_value) and any((*place, value) in self._one_value for place in places)


def evicting(node: Node) -> list[Taint]:
    """Those of its taints that pods must tolerate to stay, not only to be placed."""
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
