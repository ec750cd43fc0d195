"""How much of a selector somebody may send."""

from contextlib import aclosing

import pytest

from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.resources import PODS
from pinnace.api.selectors import SelectorError
from pinnace.api.verbs_pb2 import ListRequest, WatchRequest
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.resource import MAX_LENGTH, MAX_WATCHED, parse_selectors
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving


def options(values: int, length: int = 8) -> ListOptions:
    names = ",".join(f"n{number:0{length - 2}}" for number in range(values))
    return ListOptions(fieldSelector=f"spec.nodeName in ({names})", resourceVersion="1")


@pytest.mark.parametrize("person", ["fleet", "admin"])
def test_fleet_may_name_all_its_nodes(person: str) -> None:
    """And who is no fleet but runs one, with --insecure for example."""
    selection = parse_selectors(PODS, "", options(20_000), PEOPLE[person], watched=True)
    assert selection.nodes is not None and len(selection.nodes) == 20_000


@pytest.mark.parametrize("person", ["viewer", "nobody", "scheduler", "controllers"])
def test_others_may_not(person: str) -> None:
    """Each value of a watch is kept for as long as the watch."""
    user = PEOPLE[person]
    assert parse_selectors(PODS, "", options(MAX_WATCHED), user, watched=True).nodes
    assert parse_selectors(PODS, "", options(MAX_WATCHED + 1), user).nodes, "a list keeps nothing"
    with pytest.raises(SelectorError, match="1,001 values: only fleets may watch more than 1,000; select fewer"):
        parse_selectors(PODS, "", options(MAX_WATCHED + 1), user, watched=True)
    with pytest.raises(SelectorError, match="characters: only fleets may send more than 65,536; select fewer"):
        parse_selectors(PODS, "", options(MAX_LENGTH // 8), user)


@pytest.mark.parametrize(("fields", "labels"), [(",metadata.name!=x", ""), ("", "app notin (x)")])
def test_values_of_several_requirements_add_up(fields: str, labels: str) -> None:
    asked = options(MAX_WATCHED)
    asked.fieldSelector += fields
    asked.labelSelector = labels
    with pytest.raises(SelectorError, match="1,001 values"):
        parse_selectors(PODS, "", asked, PEOPLE["viewer"], watched=True)


def test_values_of_labels_count_as_well() -> None:
    """Each is kept with the watch, too."""
    asked = ListOptions(labelSelector=f"app in ({','.join(f'v{number}' for number in range(MAX_WATCHED + 1))}),!old")
    parse_selectors(PODS, "", asked, PEOPLE["viewer"])
    with pytest.raises(SelectorError, match="selectors of 1,001 values"):
        parse_selectors(PODS, "", asked, PEOPLE["viewer"], watched=True)


async def test_watch_of_too_many_names_is_refused_before_it_starts() -> None:
    viewer = Caller(PEOPLE["viewer"])
    async with serving() as assembly:
        watch = WatchRequest(namespace=OWN, options=options(MAX_WATCHED + 1))
        async with aclosing(assembly.methods["/pinnace.v1.Pods/Watch"].stream(watch, viewer)) as responses:
            with pytest.raises(Rejected, match="only fleets may watch"):
                await anext(responses)
        asked = ListRequest(namespace=OWN, options=options(MAX_LENGTH // 8))
        with pytest.raises(Rejected, match="only fleets may send"):
            await assembly.methods["/pinnace.v1.Pods/List"].call(asked, viewer)
