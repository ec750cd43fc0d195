"""Text forms of fences: in the metadata of a call, and in the annotation of a bound pod.

pinnace-fence: scheduler/4711/9f86d0...     metadata: election, token, and the session's secret in hexadecimal
pinnace.io/fence: scheduler/4711            annotation: the term, without the secret, because clients can read the pod
"""

import re
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.integers import parse_natural
from pinnace.api.pods_pb2 import Fence
from pinnace.api.wellknown import FENCE_ANNOTATION

_REFUSED = re.compile(r"\bwith token (\d+)\b")
KEY = "pinnace-fence"
"""The metadata key of a fence."""
MAX_SECRET = 64
"""The maximum size of a secret in bytes."""


class BoundFence(NamedTuple):
    """The fence under which a pod was bound."""

    election: str
    """The election, or "" if the pod was bound without a fence."""
    token: int


_UNFENCED = BoundFence("", 0)


def format_term(fence: Fence) -> str:
    """Return "election/token", without the secret."""
    return f"{fence.election}/{fence.token}"


def encode_header(fence: Fence) -> str:
    """Return the fence as the value of KEY. The value contains the secret."""
    return f"{fence.election}/{fence.token}/{fence.secret.hex()}"


def parse(text: str) -> Fence:
    """Parse the value of KEY. Raises ValueError; its message does not contain the secret."""
    election, _, rest = text.partition("/")
    written, _, secret = rest.partition("/")
    token = parse_natural(written)
    try:
        if token is None or len(secret) > 2 * MAX_SECRET:
            raise ValueError
        return Fence(election=election, token=token, secret=bytes.fromhex(secret))
    except ValueError:
        raise ValueError(
            f"{KEY}: invalid fence: expected ELECTION/TOKEN/SECRET with a hexadecimal secret, for example scheduler/4711/9f86d0"
        ) from None


def fence_of(pod: Pod) -> BoundFence:
    """Return the fence under which the pod was bound. An invalid annotation counts as none."""
    election, _, written = pod.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/")
    token = parse_natural(written)
    return BoundFence(election, token) if election and token else _UNFENCED


def refused_message(holder: str, token: int) -> str:
    """Return the message of the event Fenced. Its count is the number of writes."""
    return f"{holder}: writes with token {token} were refused by the fence, another leader was elected"


def refused_token(message: str) -> int:
    """Return the token in the message of an event Fenced; 0 if there is none."""
    token = _REFUSED.search(message)
    return int(token[1]) if token else 0
