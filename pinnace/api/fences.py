"""Fences as text: in the metadata of a call, and in the annotation of a bound pod.

pinnace-fence: scheduler/4711/9f86d0...     metadata: election, token, and the secret of the session in hexadecimal
pinnace.io/fence: scheduler/4711            annotation: the term, without the secret, because every reader of the pod sees it
"""

from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.scalars import natural
from pinnace.api.wellknown import FENCE_ANNOTATION

KEY = "pinnace-fence"
"""Of a call's metadata."""
MAX_SECRET = 64
"""Bytes."""


class Bound(NamedTuple):
    """Under which fence a pod was bound."""

    election: str
    """"": under none."""
    token: int


_UNFENCED = Bound("", 0)


def term(fence: Fence) -> str:
    """The election and the token, without the secret."""
    return f"{fence.election}/{fence.token}"


def header(fence: Fence) -> str:
    """The fence as a value of KEY. It contains the secret."""
    return f"{fence.election}/{fence.token}/{fence.secret.hex()}"


def parse(text: str) -> Fence:
    """The fence in a value of KEY. Raises ValueError, whose message does not repeat the secret."""
    election, _, rest = text.partition("/")
    written, _, secret = rest.partition("/")
    token = natural(written)
    try:
        if token is None or len(secret) > 2 * MAX_SECRET:
            raise ValueError
        return Fence(election=election, token=token, secret=bytes.fromhex(secret))
    except ValueError:
        raise ValueError(
            f"{KEY}: not a fence: expected an election, a token and a secret in hexadecimal, such as scheduler/4711/9f86d0"
        ) from None


def of(pod: Pod) -> Bound:
    """The term under which the pod was bound. An annotation that cannot be read counts as none."""
    election, _, written = pod.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/")
    token = natural(written)
    return Bound(election, token) if election and token else _UNFENCED
