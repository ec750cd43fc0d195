"""When a toleration lets a pod past a taint.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from pinnace.api.core_v1_pb2 import Toleration


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """The last three are the taint's. For how long does not matter here."""
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)
