"""What `edit` makes of what comes back."""

from typing import Any

import pytest

from pinnace.api.manifest import ManifestError
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.resources import NAMESPACES, PODS
from pinnace.cli.output.documents import completed, written
from pinnace.cli.verbs.edit import Clash, body, merged, page, read
from tests.builders import make_pod

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: default}\n"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n"


def test_a_page_has_complaints_as_comments_which_do_not_come_back() -> None:
    shown = page(POD, ["one\nand more", "two"])
    assert [line for line in shown.splitlines() if line.startswith("#")][-4:] == ["#", "# one", "# and more", "# two"]
    assert body(shown) == body(page(POD)) == POD


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (NAMESPACE, "a.yaml:1: kind: it is a Pod, and stays one"),
        (POD.replace("name: a", "name: b"), 'a.yaml:1: metadata.name: may not be changed (it is "a")'),
        (POD.replace("default", "other"), 'a.yaml:1: metadata.namespace: may not be changed (it is "default")'),
        (POD + "---\n" + NAMESPACE, "a.yaml:1: 2 objects; leave the one that was here"),
        ("{}", None),
    ],
)
def test_edit_cannot_change_the_identity(text: str, wrong: str | None) -> None:
    with pytest.raises(ManifestError) as caught:
        read(PODS, make_pod("a").build(), text, "a.yaml")
    assert wrong is None or caught.value.problems == (wrong,)
    assert read(NAMESPACES, NAMESPACES.message(metadata={"name": "default"}), NAMESPACE, "a.yaml")["kind"] == "Namespace"


LIVE = {
    "kind": "Pod",
    "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "annotations": {LAST_APPLIED: "{}", "by": "hand"}},
    "spec": {"nodeName": "n"},
    "status": {"phase": "Running"},
}


def test_edit_hides_and_restores_server_fields() -> None:
    shown = written(LIVE)
    assert shown == {"kind": "Pod", "metadata": {"name": "a", "annotations": {"by": "hand"}}, "spec": {"nodeName": "n"}}
    assert completed(shown, LIVE) == LIVE
    assert "annotations" not in written({"metadata": {"annotations": {LAST_APPLIED: "{}"}}})["metadata"]
    cleared = {"kind": "Pod", "metadata": {"name": "a"}, "status": {"phase": "Failed"}}
    metadata = {"name": "a", "uid": "u", "resourceVersion": "7", "annotations": {LAST_APPLIED: "{}"}}
    assert completed(cleared, LIVE) == {"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}}


BASE = {"replicas": 1, "labels": {"app": "web"}, "containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ({"replicas": 2}, {"labels": {"app": "web", "by": "hand"}}, {"replicas": 2, "labels": {"app": "web", "by": "hand"}}),
        ({"replicas": 2}, {"replicas": 2}, {"replicas": 2}),
        ({"labels": {}}, {"labels": {"app": "web", "x": "y"}}, {"labels": {"x": "y"}}),
        (
            {"containers": [{"name": "a", "image": "a:2"}, {"name": "b", "image": "b:1"}]},
            {"containers": [{"name": "b", "image": "b:2"}, {"name": "a", "image": "a:1"}, {"name": "c"}]},
            {"containers": [{"name": "a", "image": "a:2"}, {"name": "b", "image": "b:2"}, {"name": "c"}]},
        ),
        ({"replicas": 2}, {"replicas": 3}, None),
        ({"labels": {}}, {"labels": {"app": "other"}}, None),
        ({"args": ["a"]}, {"args": ["b"]}, None),
    ],
)
def test_concurrent_edits_are_merged_unless_they_overlap(
    mine: dict[str, Any], theirs: dict[str, Any], both: dict[str, Any] | None
) -> None:
    if both is None:
        with pytest.raises(Clash):
            merged(BASE, BASE | mine, BASE | theirs)
    else:
        assert merged(BASE, BASE | mine, BASE | theirs) == BASE | both
