"""The door of every method."""

from typing import Any

import pytest

from pinnace.api import wire
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import PatchRequest, WatchRequest
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import PriorityAndFairness
from pinnace.apiserver.flow.levels import PATCH_BYTES_PER_SEAT
from pinnace.apiserver.services.methods import MAX_BATCH, Method
from tests.builders import make_pod
from tests.nesting import nested
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving


async def test_patch_takes_the_seats_of_the_object_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says may be 55 bytes."""
    widths = []
    enter = PriorityAndFairness.request_seat

    def entered(self: PriorityAndFairness, level: str | None, user: str, width: int = 1, *rest: Any, **more: Any) -> Any:
        widths.append(width)
        return enter(self, level, user, width, *rest, **more)

    async with serving() as assembly:
        create, patch = (assembly.methods[f"/pinnace.v1.Pods/{name}"] for name in ("Create", "Patch"))
        request: Any = create.parse(b"")
        request.object.CopyFrom(make_pod("large", namespace=OWN).req(cpu="1").new())
        request.object.metadata.annotations["filling"] = "x" * 5 * PATCH_BYTES_PER_SEAT
        await create.call(request, Caller(PEOPLE["editor"]))
        monkeypatch.setattr(PriorityAndFairness, "request_seat", entered)
        for name in ("thing", "large"):
            body = b'{"metadata": {"labels": {"a": "b"}}}'
            asked = PatchRequest(namespace=OWN, name=name, type=PatchRequest.MERGE, patch=body)
            await patch.call(asked, Caller(PEOPLE["editor"]))
    assert widths == [1, 6]


async def test_batch_of_too_many_is_refused_before_its_items_are_looked_at() -> None:
    """To ask for each of a million empty items whether it is permitted takes as many seconds as the message has megabytes."""
    codes: dict[str, list[Code]] = {}
    async with serving() as assembly:
        for method in assembly.methods.values():
            request: Any = method.parse(b"")
            if "items" in request.DESCRIPTOR.fields_by_name:
                for more in (0, 1):
                    del request.items[:]
                    for _ in range(MAX_BATCH + more):
                        request.items.add()
                    with pytest.raises(Rejected) as caught:
                        await method.call(request, Caller(PEOPLE["nobody"]))
                    codes.setdefault(method.name, []).append(caught.value.refusal.code)
    assert len(codes) >= 8
    assert {tuple(result) for result in codes.values()} == {(Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT)}


@pytest.mark.parametrize("inside", ["itself", "its spec"])
async def test_object_too_deep_for_a_list_is_refused(inside: str) -> None:
    """One such pod ended every watch of pods, for good: nobody could read a response that it was in."""
    deep, shallow = (make_pod("deep", namespace=OWN).req(cpu="1").new() for _ in range(2))
    for pod, levels in ((deep, 90), (shallow, 70)):
        part: Any = pod if inside == "itself" else pod.spec
        part.CopyFrom(nested(part, levels))
    async with serving() as assembly:
        for name, field in (("Create", "object"), ("CreateBatch", "items"), ("Update", "object"), ("UpdateStatus", "object")):
            method = assembly.methods[f"/pinnace.v1.Pods/{name}"]
            with pytest.raises(Rejected, match="nested deeper than 84 levels") as caught:
                await method.call(
                    method.parse(wire.field(_number(method, field), deep.SerializeToString())), Caller(PEOPLE["editor"])
                )
            assert caught.value.refusal.code is Code.INVALID_ARGUMENT
        create = assembly.methods["/pinnace.v1.Pods/Create"]
        await create.call(
            create.parse(wire.field(_number(create, "object"), shallow.SerializeToString())), Caller(PEOPLE["editor"])
        )


def _number(method: Method, field: str) -> int:
    request: Any = method.parse(b"")
    return int(request.DESCRIPTOR.fields_by_name[field].number)


@pytest.mark.parametrize(
    ("options", "opened"),
    [
        (ListOptions(), False),
        (ListOptions(resourceVersion="0"), False),
        (ListOptions(resourceVersion="5"), True),
        (ListOptions(resourceVersionMatch="NotOlderThan", sendInitialEvents=False), True),
        (ListOptions(resourceVersion="5", resourceVersionMatch="NotOlderThan", sendInitialEvents=True), False),
    ],
)
async def test_watch_keeps_its_seat_while_the_present_state_is_made(options: ListOptions, opened: bool) -> None:
    async with serving() as assembly:
        assert assembly.methods["/pinnace.v1.Pods/Watch"]._waits_for_events(WatchRequest(options=options)) is opened
