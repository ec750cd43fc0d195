"""Refusals are decoded as they were encoded."""

import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.status import DOMAIN, Code, Refusal, Violation, decode, encode, summarize

TEXT = st.text(max_size=10)
REFUSALS = st.builds(
    Refusal,
    code=st.sampled_from([code for code in Code if code is not Code.OK]),
    reason=TEXT,
    message=TEXT,
    violations=st.lists(st.builds(Violation, TEXT, TEXT), max_size=3).map(tuple),
    retry_after=st.none() | st.integers(0, 10_000).map(lambda millis: millis / 1000),
    metadata=st.dictionaries(TEXT, TEXT, max_size=3).map(lambda facts: tuple(sorted(facts.items()))),
)


@given(REFUSALS)
def test_refusal_round_trip(refusal: Refusal) -> None:
    assert decode(status_pb2.Status.FromString(encode(refusal).SerializeToString())) == refusal


@pytest.mark.parametrize("code", list(Code), ids=lambda code: code.name)
def test_codes_match_grpc(code: Code) -> None:
    assert code_pb2.Code.Value(code.name) == code


def test_details_are_google_rpc_messages() -> None:
    refusal = Refusal(Code.INVALID_ARGUMENT, "Invalid", "no", (Violation("spec.a", "bad"),), 1.5, (("k", "v"),))
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    details = encode(refusal).details
    assert [detail.Unpack(into) for detail, into in zip(details, (info, bad, retry), strict=True)] == [True, True, True]
    assert (info.domain, info.reason, dict(info.metadata)) == (DOMAIN, "Invalid", {"k": "v"})
    assert [(v.field, v.description) for v in bad.field_violations] == [("spec.a", "bad")]
    assert retry.retry_delay.ToMilliseconds() == 1500


def test_unused_code_is_decoded_as_internal() -> None:
    assert decode(status_pb2.Status(code=15, message="data loss")).code is Code.INTERNAL


def test_status_without_details_has_no_reason() -> None:
    assert decode(status_pb2.Status(code=5, message="gone")) == Refusal(Code.NOT_FOUND, "", "gone")


def test_violations_as_text() -> None:
    assert summarize([Violation("a.b", "is bad"), Violation("", "all is lost")]) == "a.b: is bad; all is lost"
