"""`--sort-by`."""

import pytest

from pinnace.cli.jsonpath import parse_path
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.output.documents import ordered
from tests.builders import make_pod


def names(path: str, **values: str) -> list[str]:
    pods = [make_pod(name).label("of", value).build() if value else make_pod(name).build() for name, value in values.items()]
    return [pod.metadata.name for pod in ordered(pods, parse_path(path))]


def test_missing_values_sort_first_and_numbers_by_value() -> None:
    assert names(".metadata.labels.of", a="web-10", b="web-2", c="", d="7", e="10", f="web-2") == ["c", "d", "e", "b", "f", "a"]


def test_a_number_may_have_thousands_of_digits() -> None:
    """Anybody may annotate a pod with one, and all are sorted."""
    long = {name: make_pod(name).build() for name in "abc"}
    for name, value in (("a", "1" + "0" * 5000), ("b", "9" * 5000), ("c", "x7")):
        long[name].metadata.annotations["big"] = value
    found = ordered(list(long.values()), parse_path(".metadata.annotations.big"))
    assert [pod.metadata.name for pod in found] == ["c", "b", "a"]
    assert names(".metadata.labels.of", a="v0010", b="v9", c="v010") == ["b", "a", "c"]


def test_quantities_go_by_amount() -> None:
    pods = [make_pod(name).req(memory=memory).build() for name, memory in (("a", "2Gi"), ("b", "512Mi"), ("c", "1500M"))]
    path = parse_path("{.spec.containers[0].resources.requests.memory}")
    assert [pod.metadata.name for pod in ordered(pods, path)] == ["b", "c", "a"]


def test_a_path_that_no_object_has_is_a_mistake() -> None:
    with pytest.raises(Failure) as caught:
        names(".metadata.nmae", a="x", b="y")
    assert caught.value.report.code is ExitCode.USAGE
    assert names(".metadata.nmae") == []
