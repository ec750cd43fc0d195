"""What `wait --for` says, and when it is so."""

from typing import Any

import pytest

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs import wait
from pinnace.cli.verbs.wait import CREATE, DELETE


def met(text: str, **data: Any) -> bool:
    wanted = wait.parse_condition(text)
    assert not isinstance(wanted, str)
    return wanted.met({"metadata": {"name": "a", "generation": 2}, **data})


def ready(status: str, **more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Other", "status": "True"}, {"type": "Ready", "status": status, **more}]}


@pytest.mark.parametrize(
    ("text", "status", "expected"),
    [
        ("condition=Ready", ready("True"), True),
        ("condition=ready=true", ready("True"), True),
        ("condition=Ready=False", ready("False"), True),
        ("condition=Ready=False", ready("True"), False),
        ("condition=Ready=Unknown", ready("Unknown"), True),
        ("condition=Ready", ready("False"), False),
        ("condition=Missing", ready("True"), False),
        ("condition=Missing=False", ready("True"), False),
        ("condition=Ready", {}, False),
        ("condition=Ready", ready("True", observedGeneration=1), False),
        ("condition=Ready", {**ready("True"), "observedGeneration": 1}, False),
        ("condition=Ready", {**ready("True", observedGeneration=2), "observedGeneration": 1}, True),
        ("condition=Ready", {**ready("True"), "observedGeneration": 2}, True),
    ],
)
def test_conditions(text: str, status: dict[str, Any], expected: bool) -> None:
    assert met(text, status=status) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jsonpath={.status.phase}=Running", True),
        ("jsonpath=.status.phase=Running", True),
        ('jsonpath={.status.phase}="Running"', True),
        ("jsonpath={.status.phase}=Pending", False),
        ("jsonpath={.status.phase}", True),
        ("jsonpath={.status.nothing}", False),
        ("jsonpath={.status.nothing}=x", False),
        ("jsonpath={.status.count}=3", True),
        ("jsonpath={.status.ok}=true", True),
        ('jsonpath={.status.list[?(@.a=="x")].b}=y', True),
        ('jsonpath=.status.list[?(@.a=="x")].b=z', False),
    ],
)
def test_values(text: str, expected: bool) -> None:
    assert (
        met(text, status={"phase": "Running", "count": 3, "ok": True, "list": [{"a": "x", "b": "y"}, {"a": "z"}]}) is expected
    )


def test_a_path_that_finds_several_values_is_a_mistake() -> None:
    with pytest.raises(Failure, match="more than one value"):
        met("jsonpath={.status[*]}=x", status={"a": "x", "b": "x"})


@pytest.mark.parametrize("path", ["{.status}", "{.status.list}", "{.status.list[0]}"])
def test_an_object_is_like_no_text_and_will_not_become_so(path: str) -> None:
    status = {"list": [{"a": "x"}]}
    assert met(f"jsonpath={path}", status=status)
    with pytest.raises(Failure, match="object or a list"):
        met(f"jsonpath={path}=x", status=status)


def test_there_and_gone() -> None:
    assert [wait.parse_condition(word) for word in ("create", "delete")] == [CREATE, DELETE]


def test_one_after_the_other_and_first_of_all_that_it_is_there() -> None:
    found = wait.in_turn(["condition=Ready", "create", "jsonpath=.a", "delete"])
    assert (found[0], found[-1]) == (CREATE, DELETE)
    assert found[1:-1] == [wait.parse_condition("condition=Ready"), wait.parse_condition("jsonpath=.a")]
    with pytest.raises(Failure, match="--for=delete"):
        wait.in_turn(["delete", "condition=Ready"])


@pytest.mark.parametrize(
    "text",
    ["", "ready", "condition", "condition=", "condition=Ready=", "condition==True", "jsonpath=", "jsonpath={.a}="],
)
def test_mistakes(text: str) -> None:
    with pytest.raises(Failure) as caught:
        wait.parse_condition(text)
    assert caught.value.report.code is ExitCode.USAGE
