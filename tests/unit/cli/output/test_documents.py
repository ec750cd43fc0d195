import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinnace.api.documents import parse
from pinnace.cli.output.documents import dump_document

LOOKS_LIKE_A_NUMBER = st.text("0123456789eExXo.+-_", min_size=1, max_size=10)
WORDS = st.sampled_from(
    ["", "~", "null", "Yes", "off", "TRUE", "=", "<<", "---", "- a", "a: b", "#", "2026-01-31", "1:30", "1_0"]
)


@given(st.text() | LOOKS_LIKE_A_NUMBER | WORDS, st.text(max_size=20) | LOOKS_LIKE_A_NUMBER)
@example("12e4567", "0900")
@example("1" * 5000, "1e3")
@example("\x85\u2028\ufeff\U0001f600\n \t", "\ufeff")
def test_any_text_is_read_back_as_it_was_written(value: str, key: str) -> None:
    written = {"labels": {key: value}, "args": [value]}
    assert [document.data for document in parse(dump_document("yaml", written))] == [written]


@pytest.mark.parametrize("text", ["12e4567", "0900", "08", "1e3", "0o17", "yes", "y", "N", "1", "1" * 65 + "e1"])
def test_ambiguous_text_is_quoted(text: str) -> None:
    assert dump_document("yaml", {"a": text}) == f"a: '{text}'\n"


@pytest.mark.parametrize("text", ["a", "500m", "1.2.3", "12e4567a", "nginx:1.25", "10.0.0.1"])
def test_plain_text_is_not_quoted(text: str) -> None:
    assert dump_document("yaml", {"a": text}) == f"a: {text}\n"
