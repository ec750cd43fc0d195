"""Content negotiation for client-go, kubectl and the Python clients, and the envelope of protobuf objects."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.gateway.http import ApiStatus
from pinnace.gateway.media_types import (
    MAGIC,
    PROTOBUF,
    ResponseFormat,
    envelope,
    negotiate,
    parse_body,
    parse_content_type,
    unwrap_protobuf,
)

JSON = "application/json"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", ResponseFormat(JSON)),
        ("*/*", ResponseFormat(JSON)),
        ("application/json, */*;q=0.8", ResponseFormat(JSON)),
        ("application/vnd.kubernetes.protobuf,application/json", ResponseFormat(PROTOBUF)),
        ("application/yaml", ResponseFormat("application/yaml")),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            ResponseFormat(JSON, "Table", "v1"),
        ),
        ("application/json;g=meta.k8s.io;v=v1beta1;as=Table", ResponseFormat(JSON, "Table", "v1beta1")),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ResponseFormat(JSON, "PartialObjectMetadataList")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", ResponseFormat(JSON)),
        ("application/cbor;q=0.9,application/json;q=0.5", ResponseFormat(JSON)),
    ],
)
def test_preferred_supported_media_type_is_chosen(accept: str, expected: ResponseFormat) -> None:
    assert negotiate(accept) == expected


@pytest.mark.parametrize("accept", ["application/cbor", "text/html", "application/json;q=0", "application/json;as=Table"])
def test_unsupported_media_types_are_not_acceptable(accept: str) -> None:
    """The response must not be 200 with another media type (kubernetes#50342)."""
    with pytest.raises(ApiStatus) as refused:
        negotiate(accept)
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")


def test_body_of_another_type_is_unsupported() -> None:
    assert parse_content_type("") == JSON
    with pytest.raises(ApiStatus) as refused:
        parse_content_type("text/plain")
    assert refused.value.code == 415


@given(st.text(max_size=40), st.text(max_size=40), st.binary(max_size=5000))
def test_envelope_round_trip(api_version: str, kind: str, data: bytes) -> None:
    wrapped = envelope(api_version, kind, data)
    assert wrapped.startswith(MAGIC)
    assert unwrap_protobuf(wrapped) == (api_version, kind, data)


@given(st.binary(max_size=200))
def test_arbitrary_envelope_is_read_or_refused(data: bytes) -> None:
    try:
        unwrap_protobuf(MAGIC + data)
    except ApiStatus as refused:
        assert refused.code == 400


def test_duplicate_keys_are_reported() -> None:
    told: list[str] = []
    assert parse_body(b'{"a": 1, "b": {"c": 1, "c": 2}}', JSON, told.append) == {"a": 1, "b": {"c": 2}}
    assert told == ["b.c"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "unexpected end of JSON input (<empty>)"),
        (b"{nope", "invalid character 'n' looking for beginning of object key string ({nope)"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":["]" 2]}', "invalid character '2' after array element"),
        (b'{"a":["]"] 2}', "invalid character '2' after object key:value pair"),
        (b'{"a":[1,]}', "invalid character ']' looking for beginning of value"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b'{"a":"\n"}', "invalid character '\\n' in string literal"),
        (b'{"a":"\\q"}', "invalid character 'q' in string escape code"),
        (b'{"a":nil}', "invalid character 'i' in literal null (expecting 'u')"),
        (b"{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
        (b'{"a":', "unexpected end of JSON input"),
        (b'{"a":"b', "unexpected end of JSON input"),
        (b"x" * 40, f"invalid character 'x' looking for beginning of value ({'78' * 30} ...)"),
    ],
)
def test_syntax_error_has_the_words_of_kubernetes(body: bytes, problem: str) -> None:
    with pytest.raises(ApiStatus) as refused:
        parse_body(body, JSON, kind="Pod")
    head = "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: "
    assert refused.value.message.startswith(head + problem)


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"a": NaN', b"\xff"])
def test_malformed_json_body_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(ApiStatus) as refused:
        parse_body(body, JSON)
    assert refused.value.code == 400 and json.dumps(refused.value.document)
