"""Manifests and conditions, as the handle of a cluster reads them."""

from pathlib import Path

import pytest

from pinnace.testing.handle import has_condition, load_manifests

TWO = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"


def names(manifest: Path) -> list[str]:
    return [thing["metadata"]["name"] for thing in load_manifests(manifest)]


def test_file_has_several_objects(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO)
    assert names(path) == ["a", "b"]


def test_folder_is_read_in_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "2.yml").write_text(TWO.replace("name: a", "name: c"))
    (tmp_path / "1.yaml").write_text(TWO)
    (tmp_path / "README").write_text("no manifest")
    assert names(tmp_path) == ["a", "b", "c", "b"]


def test_list_is_its_items(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}]\n")
    assert names(path) == ["a"]


@pytest.mark.parametrize("text", ["kind: Pod", "- 1", "a: [", "text"])
def test_file_that_is_no_manifest_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"wrong\.yaml"):
        load_manifests(path)


def test_condition_must_be_true() -> None:
    def thing(status: str) -> dict[str, object]:
        return {"status": {"conditions": [{"type": "Ready", "status": status}]}}

    assert has_condition(thing("True"), "Ready")
    assert not has_condition(thing("False"), "Ready")
    assert not has_condition({}, "Ready")
