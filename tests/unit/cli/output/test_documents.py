import json

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pinnace.api.documents import parse
from pinnace.api.manifest import load as load_manifest
from pinnace.api.resources import PODS, PRIORITY_CLASSES
from pinnace.cli.objects.query import Item
from pinnace.cli.output.documents import dump, many, one
from tests.builders import make_pod

ITEMS: list[Item] = [(PODS, make_pod(name).req(cpu="1").build()) for name in "ab"]


@pytest.mark.parametrize(("form", "load"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_documents(form: str, load: object) -> None:
    assert callable(load)
    first = load(one(form, ITEMS[0]))
    assert (first["kind"], first["metadata"]["name"]) == ("Pod", "a")
    found = load(many(form, ITEMS))
    assert (found["apiVersion"], found["kind"], found["items"][0]) == ("v1", "List", first)
    assert load(many(form, []))["items"] == []


def test_names() -> None:
    high = PRIORITY_CLASSES.message()
    high.metadata.name = "high"
    assert many("name", [*ITEMS, (PRIORITY_CLASSES, high)]) == "pod/a\npod/b\npriorityclass.scheduling.k8s.io/high\n"


def test_managed_fields_are_left_out_unless_asked_for() -> None:
    pod = make_pod("a").build()
    pod.metadata.managedFields.add(manager="kubectl", operation="Apply")
    item: Item = (PODS, pod)
    assert "managedFields" not in one("yaml", item) + many("json", [item])
    assert "kubectl" in one("yaml", item, managed_fields=True) and "kubectl" in many("json", [item], managed_fields=True)


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
    assert [document.data for document in parse(dump("yaml", written))] == [written]


@pytest.mark.parametrize("text", ["12e4567", "0900", "08", "1e3", "0o17", "yes", "y", "N", "1", "1" * 65 + "e1"])
def test_ambiguous_text_is_quoted(text: str) -> None:
    assert dump("yaml", {"a": text}) == f"a: '{text}'\n"


@pytest.mark.parametrize("text", ["a", "500m", "1.2.3", "12e4567a", "nginx:1.25", "10.0.0.1"])
def test_plain_text_is_not_quoted(text: str) -> None:
    assert dump("yaml", {"a": text}) == f"a: {text}\n"


def test_printed_object_can_be_applied() -> None:
    pod = make_pod("a").label("commit", "12e4567").build()
    (read,) = load_manifest(one("yaml", (PODS, pod)), "-")
    assert read.obj == pod
