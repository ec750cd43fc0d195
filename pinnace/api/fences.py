"""Fences in words: "scheduler/4711" is the leadership of the election "scheduler" that has the token 4711.

So says the metadata of a call that is made in a leader's name, and the annotation of a pod that a leader has bound.
"""

from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.naturals import natural
from pinnace.api.pods_pb2 import Fence
from pinnace.api.wellknown import FENCE_ANNOTATION

KEY = "pinnace-fence"
"""Of a call's metadata."""


class Bound(NamedTuple):
    """Under which fence a pod was bound."""

    election: str
    """"": under none."""
    token: int


_UNFENCED = Bound("", 0)


def told(fence: Fence) -> str:
    return f"{fence.election}/{fence.token}"


def parse(text: str) -> Fence:
    """Raises ValueError."""
    election, _, written = text.rpartition("/")
    if (token := natural(written)) is None:
        raise ValueError(f'"{text[:64]}" is no fence: it needs the name of an election and its token, such as "scheduler/4711"')
    return Fence(election=election, token=token)


def of(pod: Pod) -> Bound:
    """What is no fence counts as none: who reads the pods of a cluster must not end over what is in one of them."""
    election, _, written = pod.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/")
    token = natural(written)
    return Bound(election, token) if election and token else _UNFENCED
