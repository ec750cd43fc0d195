"""The door of every method."""

from typing import Any

import pytest

from apiserver.flow.control import FlowControl
from apiserver.flow.width import PATCHED
from apiserver.registry.errors import Rejected
from apiserver.services.methods import MAX_BATCH
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import PatchRequest, WatchRequest
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving


async def test_a_patch_takes_the_seats_of_the_object_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says may be 55 bytes."""
    widths = []
    enter = FlowControl.enter

    def entered(self: FlowControl, level: str | None, user: str, width: int = 1, *rest: Any, **more: Any) -> Any:
        widths.append(width)
        return enter(self, level, user, width, *rest, **more)

    async with serving() as assembly:
        create, patch = (assembly.methods[f"/pinnace.v1.Pods/{name}"] for name in ("Create", "Patch"))
        request: Any = create.parse(b"")
        request.object.CopyFrom(make_pod("large", namespace=OWN).req(cpu="1").new())
        request.object.metadata.annotations["filling"] = "x" * 5 * PATCHED
        await create.call(request, Caller(PEOPLE["editor"]))
        monkeypatch.setattr(FlowControl, "enter", entered)
        for name in ("thing", "large"):
            body = b'{"metadata": {"labels": {"a": "b"}}}'
            asked = PatchRequest(namespace=OWN, name=name, type=PatchRequest.MERGE, patch=body)
            await patch.call(asked, Caller(PEOPLE["editor"]))
    assert widths == [1, 6]


async def test_a_batch_of_too_many_is_refused_before_its_items_are_looked_at() -> None:
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
    assert {tuple(found) for found in codes.values()} == {(Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT)}


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
async def test_a_watch_keeps_its_seat_while_the_present_state_is_made(options: ListOptions, opened: bool) -> None:
    async with serving() as assembly:
        assert assembly.methods["/pinnace.v1.Pods/Watch"]._opened(WatchRequest(options=options)) is opened
