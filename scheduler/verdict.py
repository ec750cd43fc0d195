"""What the answer to a bind says about the world."""

from enum import Enum, auto

from pinnace.client.errors import ApiError, Fenced, Internal, NotFound, Unavailable


class Verdict(Enum):
    BOUND = auto()
    FENCED = auto()
    """Another leader has been elected: nothing that carries this token will commit any more."""
    GONE = auto()
    """There is no such pod."""
    REFUSED = auto()
    """It did not happen. Perhaps because it had happened before: read the pod."""
    UNKNOWN = auto()
    """The answer was lost: it may have happened, and may still happen."""


def verdict(answer: ApiError | None) -> Verdict:
    match answer:
        case None:
            return Verdict.BOUND
        case Fenced():
            return Verdict.FENCED
        case NotFound():
            return Verdict.GONE
        case Unavailable() | Internal():
            return Verdict.UNKNOWN
        case _:
            return Verdict.REFUSED
