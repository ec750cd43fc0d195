"""Fences in words: "scheduler/4711" is the leadership of the election "scheduler" that has the token 4711.

So says the metadata of a call that is made in a leader's name, and the annotation of a pod that a leader has bound.
"""

from pinnace.api.naturals import natural
from pinnace.api.pods_pb2 import Fence

KEY = "pinnace-fence"
"""Of a call's metadata."""


def told(fence: Fence) -> str:
    return f"{fence.election}/{fence.token}"


def parse(text: str) -> Fence:
    """Raises ValueError."""
    election, _, written = text.rpartition("/")
    if (token := natural(written)) is None:
        raise ValueError(f'"{text[:64]}" is no fence: it needs the name of an election and its token, such as "scheduler/4711"')
    return Fence(election=election, token=token)
