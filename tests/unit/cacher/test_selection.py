import pytest

from pinnace.api.core_v1_pb2 import Namespace, Pod
from pinnace.api.resources import NAMESPACES, NODES, PODS
from pinnace.api.selectors import SelectorError
from pinnace.apiserver.cacher.store import CacheEntry, SelectionPredicate
from tests.unit.cacher.world import CASES, Case, pod


def entry(obj: Pod) -> CacheEntry[Pod]:
    return CacheEntry(Pod, PODS.key_of(obj), obj.SerializeToString(), 1, 1, obj.spec.nodeName, obj.status.phase)


PODS_OF_ALL_KINDS = [
    pod(name, namespace, app=app, node=node, phase=phase)
    for name in ("a", "aa", "b")
    for namespace in ("default", "other", "defaultx")
    for app in ("", "web", "db")
    for node in ("", "n1", "n2", "n11")
    for phase in ("", "Running", "Failed")
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_selection_matches_its_text(case: Case) -> None:
    verdicts = [case.selection.matches(entry(item)) for item in PODS_OF_ALL_KINDS]
    assert verdicts == [case.predicate(item) for item in PODS_OF_ALL_KINDS]
    assert any(verdicts)


@pytest.mark.parametrize(
    ("fields", "looks_inside"),
    [
        ("", False),
        ("spec.nodeName=n1", False),
        ("metadata.name=a", False),
        ("spec.nodeName!=n1", True),
        ("status.phase=Running", False),
        ("status.phase!=Failed,spec.nodeName=n1", False),
        ("spec.schedulerName=mine", True),
    ],
)
def test_objects_are_parsed_only_when_they_must_be(fields: str, looks_inside: bool) -> None:
    selection = SelectionPredicate.parse(PODS, "", "", fields)
    broken = CacheEntry(Pod, PODS.key("default", "a"), b"\xff", 1, 1, "n1", "Running")
    assert selection.needs_object is looks_inside
    if not looks_inside:
        assert selection.matches(broken)


def test_namespace_of_cluster_scoped_resources_does_not_matter() -> None:
    assert SelectionPredicate.parse(NODES, "default", "", "") == SelectionPredicate.parse(NODES, "", "", "")
    assert SelectionPredicate.parse(NODES, "default", "", "").everything


def test_phase_of_what_is_no_pod_is_read_from_the_object() -> None:
    ending = Namespace()
    ending.status.phase = "Terminating"
    one = CacheEntry(Namespace, NAMESPACES.key("", "a"), ending.SerializeToString(), 1, 1)
    assert SelectionPredicate.parse(NAMESPACES, "", "", "status.phase=Terminating").matches(one)
    assert not SelectionPredicate.parse(NAMESPACES, "", "", "status.phase!=Terminating").matches(one)


def test_selections_that_say_the_same_are_equal() -> None:
    one, other = SelectionPredicate.parse(PODS, "", "b,a=1", ""), SelectionPredicate.parse(PODS, "", "a==1, b", "")
    assert one == other
    assert hash(one) == hash(other)
    assert one.digest == other.digest


def test_selections_that_differ_have_other_digests() -> None:
    selections = [case.selection for case in CASES]
    selections.append(SelectionPredicate.parse(NODES, "", "", ""))
    assert len({selection.digest for selection in selections}) == len(selections)
    assert len(set(selections)) == len(selections)


def test_digest_is_the_same_in_every_process() -> None:
    assert SelectionPredicate.parse(PODS, "default", "a in (x,y)", "spec.nodeName=n1").digest == "4e8b9a6094619350"


def test_wrong_text_is_refused() -> None:
    with pytest.raises(SelectorError, match="unknown field"):
        SelectionPredicate.parse(NODES, "", "", "spec.nodeName=a")
    with pytest.raises(SelectorError, match="label selector"):
        SelectionPredicate.parse(NODES, "", "a in", "")
