"""The error of a call that is given up."""

import pytest

from pinnace.api.status import Code, Refusal
from pinnace.client.connection import SLOW_AFTER, CallState
from pinnace.client.errors import ApiError, NotFound, OutcomeUnknown, Unavailable, from_refusal, unavailable_error

READ, WRITE = "/pinnace.v1.Pods/Get", "/pinnace.v1.Pods/DeleteBatch"
LOST: ApiError = unavailable_error("the connection broke")
REFUSED: ApiError = from_refusal(Refusal(Code.UNAVAILABLE, "", "no leader", retry_after=0.1))


def cancellation_error(course: CallState, now: float) -> tuple[type[Unavailable], str] | None:
    result = course.cancellation_error(now)
    return (type(result), result.message) if result is not None else None


def test_recently_sent_call_has_no_error() -> None:
    for method in (READ, WRITE):
        course = CallState(method)
        course.record_sent("a:1", 10)
        assert cancellation_error(course, 10 + SLOW_AFTER / 2) is None


def test_call_without_an_answer_times_out() -> None:
    read, write = CallState(READ), CallState(WRITE)
    for course in (read, write):
        course.record_sent("a:1", 10)
    assert "no response from the API server at a:1" in str(read.cancellation_error(10 + SLOW_AFTER)) and not isinstance(
        read.cancellation_error(11), OutcomeUnknown
    )
    assert isinstance(write.cancellation_error(11), OutcomeUnknown) and "no response from the API server at a:1" in str(
        write.cancellation_error(11)
    )


@pytest.mark.parametrize("later", [LOST, REFUSED], ids=["lost", "refused"])
def test_write_with_a_lost_response_stays_unknown(later: ApiError) -> None:
    course = CallState(WRITE)
    course.record_sent("a:1", 1)
    course.record_failure(LOST)
    course.record_failure(unavailable_error("cannot connect"))
    course.record_sent("b:1", 2)
    course.record_failure(later)
    assert isinstance(course.cancellation_error(3), OutcomeUnknown) and str(later) in str(course.cancellation_error(3))


def test_refused_write_has_a_known_outcome() -> None:
    course = CallState(WRITE)
    course.record_failure(unavailable_error("cannot connect"))
    course.record_sent("a:1", 1)
    course.record_failure(REFUSED)
    assert cancellation_error(course, 2) == (Unavailable, "no leader")


def test_response_clears_the_error() -> None:
    course = CallState(READ)
    course.record_sent("a:1", 1)
    course.record_failure(NotFound(Refusal(Code.NOT_FOUND, "NotFound", "gone")))
    assert course.cancellation_error(9) is None
