"""The door of every method."""

from typing import Any

import pytest

from apiserver.registry.errors import Rejected
from apiserver.services.methods import MAX_BATCH
from pinnace.api.status import Code
from tests.unit.auth.matrix import PEOPLE, Caller, serving


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
