"""The error of a call that is given up."""

import pytest

from pinnace.api.status import Code, Refusal
from pinnace.client.connection import SLOW_AFTER, CallState
from pinnace.client.errors import ApiError, NotFound, OutcomeUnknown, Unavailable, from_refusal, unavailable

READ, WRITE = "/pinnace.v1.Pods/Get", "/pinnace.v1.Pods/DeleteBatch"
LOST: ApiError = unavailable("the connection broke")
REFUSED: ApiError = from_refusal(Refusal(Code.UNAVAILABLE, "", "no leader", retry_after=0.1))


def told(course: CallState, now: float) -> tuple[type[Unavailable], str] | None:
    found = course.told(now)
    return (type(found), found.message) if found is not None else None


def test_recently_sent_call_has_no_error() -> None:
    for method in (READ, WRITE):
        course = CallState(method)
        course.sent("a:1", 10)
        assert told(course, 10 + SLOW_AFTER / 2) is None


def test_call_without_an_answer_times_out() -> None:
    read, write = CallState(READ), CallState(WRITE)
    for course in (read, write):
        course.sent("a:1", 10)
    assert "no response from the API server at a:1" in str(read.told(10 + SLOW_AFTER)) and not isinstance(
        read.told(11), OutcomeUnknown
    )
    assert isinstance(write.told(11), OutcomeUnknown) and "no response from the API server at a:1" in str(write.told(11))


@pytest.mark.parametrize("later", [LOST, REFUSED], ids=["lost", "refused"])
def test_write_with_a_lost_response_stays_unknown(later: ApiError) -> None:
    course = CallState(WRITE)
    course.sent("a:1", 1)
    course.failed(LOST)
    course.failed(unavailable("cannot connect"))
    course.sent("b:1", 2)
    course.failed(later)
    assert isinstance(course.told(3), OutcomeUnknown) and str(later) in str(course.told(3))


def test_refused_write_has_a_known_outcome() -> None:
    course = CallState(WRITE)
    course.failed(unavailable("cannot connect"))
    course.sent("a:1", 1)
    course.failed(REFUSED)
    assert told(course, 2) == (Unavailable, "no leader")


def test_response_clears_the_error() -> None:
    course = CallState(READ)
    course.sent("a:1", 1)
    course.failed(NotFound(Refusal(Code.NOT_FOUND, "NotFound", "gone")))
    assert course.told(9) is None
