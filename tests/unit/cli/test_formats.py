import json

import pytest
import yaml

from pinnace.api.resources import PODS, PRIORITY_CLASSES
from pinnace.cli.formats import many, one
from pinnace.cli.targets import Item
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
