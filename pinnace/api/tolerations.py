"""When a toleration lets a pod past a taint, and which taints send pods away that are there.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from pinnace.api.core_v1_pb2 import Node, Taint, Toleration

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Of taints."""


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """The last three are the taint's. For how long does not matter here."""
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


def evicting(node: Node) -> list[Taint]:
    """Those of its taints that pods must tolerate to stay, not only to be placed."""
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
