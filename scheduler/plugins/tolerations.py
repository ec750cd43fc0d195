"""The taints that keep a pod away."""

from collections.abc import Iterable

from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import Taint


def untolerated(taints: Iterable[Taint], pod: PodInfo, effects: tuple[str, ...]) -> list[Taint]:
    """The taints of these effects that none of the pod's tolerations lets past."""
    tolerations = pod.tolerations
    return [taint for taint in taints if taint[2] in effects and not tolerations.tolerate(*taint)]
