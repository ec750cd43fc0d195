"""What `-o` says."""

import pytest
import yaml

from pinnace.api.resources import PODS
from pinnace.cli.objects.query import Item
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.output.showing import Format, format_of
from tests.builders import make_pod

ITEMS: list[Item] = [(PODS, make_pod("a").node("n1").build()), (PODS, make_pod("b").label("tier", "x,y").build())]


def form(output: str, *, headers: bool = True) -> Format:
    found = format_of(output, headers=headers)
    assert found is not None
    return found


def test_tables_are_the_servers() -> None:
    assert format_of(None) is format_of("wide") is None


def test_a_template_sees_one_object_or_a_list() -> None:
    assert form("jsonpath={.metadata.name}").one(ITEMS[0]) == "a"
    assert form("jsonpath={.kind}: {.items[*].metadata.name}").many(ITEMS) == "List: a b"
    assert form("jsonpath={.items[*].metadata.name}").many([]) == ""


@pytest.mark.parametrize("form_name", ["json", "yaml"])
def test_a_list_carries_its_resource_version(form_name: str) -> None:
    assert yaml.safe_load(form(form_name).many(ITEMS, 812))["metadata"] == {"resourceVersion": "812"}
    assert yaml.safe_load(form(form_name).many(ITEMS))["metadata"] == {"resourceVersion": ""}, "kinds were mixed"


def test_columns_of_ones_own() -> None:
    spec = "custom-columns=NAME:.metadata.name,NODE:spec.nodeName,BOTH:{.metadata['name','namespace']}"
    shown = form(spec)
    assert shown.many(ITEMS).split() == ["NAME", "NODE", "BOTH", "a", "n1", "a,default", "b", "<none>", "b,default"]
    assert shown.appended(ITEMS[0]).split() == ["a", "n1", "a,default"], "the headers stand once"
    assert form(spec, headers=False).one(ITEMS[0]).split() == ["a", "n1", "a,default"]


def test_appended_documents_are_separated() -> None:
    text = "".join(map(form("yaml").appended, ITEMS))
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(text)] == ["a", "b"]


@pytest.mark.parametrize(
    "output",
    [
        "yml",
        "",
        "yaml=x",
        "jsonpath",
        "jsonpath=",
        "jsonpath={.a",
        "custom-columns",
        "custom-columns=",
        "custom-columns=A,B:.x",
    ],
)
def test_mistakes(output: str) -> None:
    with pytest.raises(Failure) as caught:
        format_of(output)
    assert caught.value.report.code is ExitCode.USAGE and caught.value.report.hint


def test_a_column_may_have_an_empty_name() -> None:
    """kubernetes#24133: the usual way to print names only."""
    assert form("custom-columns=:metadata.name").many(ITEMS).split() == ["a", "b"]
