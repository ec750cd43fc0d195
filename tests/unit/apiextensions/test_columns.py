"""Printer columns and the JSONPaths that they use."""

from typing import Any

import pytest

from pinnace.apiextensions.columns import cells, columns_of
from pinnace.apiextensions.jsonpath import MAX_LENGTH, JSONPathError, compile_jsonpath

OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"n": 1, "f": 1.5, "l": [1, 2, 3], "m": {"a.b": "x"}, "nothing": None},
    "status": {"conditions": [{"type": "Ready", "status": "True", "n": 2}, {"type": "Synced", "status": "False"}]},
}
START = 1767225600.0
"""Unix time of 2026-01-01T00:00:00Z."""


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.n", [1]),
        ("$.spec.n", [1]),
        (".spec.l[0]", [1]),
        (".spec.l[-1]", [3]),
        (".spec.l[7]", []),
        (".spec.l[0:2]", [1, 2]),
        (".spec.l[::2]", [1, 3]),
        (".spec.l[*]", [1, 2, 3]),
        (".spec.l[0,2]", [1, 3]),
        (r".spec.m.a\.b", ["x"]),
        (r".spec.m['a\.b']", ["x"]),
        (".spec.*", [1, 1.5, [1, 2, 3], {"a.b": "x"}, None]),
        ("..type", ["Ready", "Synced"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        ('.status.conditions[?(@.type!="Ready")].status', ["False"]),
        (".status.conditions[?(@.n>1)].type", ["Ready"]),
        (".status.conditions[?(@.n)].type", ["Ready"]),
        (".status.conditions[?(@.n=='2')].type", []),
        (".spec.nope.x", []),
        (".spec.n.x", []),
        (".spec.n[0]", []),
        (".", []),
    ],
)
def test_path_selects_values(path: str, values: list[Any]) -> None:
    assert compile_jsonpath(path).find(OBJECT) == values


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".a[", "unterminated array"),
        (".a[x]", "invalid array index x"),
        (".a[?(@.b==1]", "unterminated filter"),
        (".a[?(@.b==1)", "unclosed array expect ]"),
        ("....a", "invalid multiple recursive descent"),
        (".a}", "unclosed action"),
        ("." * (MAX_LENGTH + 1), f"the path has more than {MAX_LENGTH} characters"),
        ("[?(" * 600 + "a" + ")]", "unterminated filter"),
    ],
)
def test_invalid_path_is_refused(path: str, message: str) -> None:
    with pytest.raises(JSONPathError, match=f"^{message.replace('[', chr(92) + '[')}$"):
        compile_jsonpath(path)


def test_path_that_visits_too_many_values_selects_none() -> None:
    nested: Any = 1
    for _ in range(60):
        nested = {"a": nested, "b": [nested]}
    assert compile_jsonpath("..a..b..a").find(nested) == []


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("integer", ".spec.n", 1),
        ("integer", ".spec.f", 1),
        ("integer", ".status", None),
        ("number", ".spec.n", 1.0),
        ("string", ".spec.n", "1"),
        ("string", ".spec.l", "[1,2,3]"),
        ("string", ".spec.l[*]", "1"),
        ("string", ".spec.nope", None),
        ("boolean", ".spec.n", None),
        ("date", ".metadata.creationTimestamp", "5m"),
        ("date", ".metadata.name", "<invalid>"),
    ],
)
def test_cell_has_type_of_column(kind: str, path: str, cell: Any) -> None:
    columns = columns_of({"additionalPrinterColumns": [{"name": "C", "type": kind, "jsonPath": path}]})
    assert cells(columns, OBJECT, now=START + 300) == [cell]


def test_version_without_columns_has_age() -> None:
    columns = columns_of({})
    assert [(column.definition["name"], column.definition["type"]) for column in columns] == [("Age", "date")]
    assert cells(columns, OBJECT, now=START + 60) == ["60s"]


def test_columns_end_before_invalid_path() -> None:
    columns = [{"name": name, "type": "string", "jsonPath": path} for name, path in (("A", ".a"), ("B", ".a["), ("C", ".c"))]
    assert [column.definition["name"] for column in columns_of({"additionalPrinterColumns": columns})] == ["A"]
