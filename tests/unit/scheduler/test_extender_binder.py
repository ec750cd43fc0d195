"""The extender that binds, as a Bind plugin: what its failures mean for the bind."""

import pytest

from pinnace.api.pods_pb2 import Fence
from pinnace.client.errors import ApiError
from pinnace.scheduler.binding_cycle import BindResult, bind_result
from pinnace.scheduler.extenders.extender import ExtenderBinder
from pinnace.scheduler.extenders.interface import ExtenderError, NotSent, ResponseLost
from pinnace.scheduler.framework import SKIP
from tests.builders import make_pod
from tests.unit.scheduler.fake_extender import URL, FakeTransport
from tests.unit.scheduler.pods import info

POD, FENCE = info(make_pod("a")), Fence(election="scheduler", token=7)


async def test_it_binds_with_the_fence() -> None:
    transport = FakeTransport(bind=None)
    assert await ExtenderBinder(transport.extender()).bind({}, POD, "n1", FENCE) is None
    assert transport.asked == [("bind", ("a", "n1", 7))]


def test_pods_that_do_not_interest_it_go_on_to_the_other_plugins() -> None:
    binder = ExtenderBinder(FakeTransport(bind=None).extender(managed=["example.com/gpu"]))
    assert binder.pre_flight({}, POD, "n1") is SKIP
    assert binder.pre_flight({}, info(make_pod("b").container({"example.com/gpu": 1})), "n1") is None


@pytest.mark.parametrize(
    ("failure", "means"),
    [
        (ResponseLost("bind", URL, ": no answer within 5 s"), BindResult.UNKNOWN),
        (ExtenderError("bind", URL, ": out of order"), BindResult.REFUSED),
    ],
)
async def test_unknown_outcome_of_an_extender_bind_is_read(failure: ExtenderError, means: BindResult) -> None:
    with pytest.raises(ApiError) as raised:
        await ExtenderBinder(FakeTransport(bind=failure).extender()).bind({}, POD, "n1", FENCE)
    assert bind_result(raised.value) is means and str(failure) in str(raised.value)


async def test_bind_that_was_never_sent_has_failed() -> None:
    with pytest.raises(NotSent):
        await ExtenderBinder(FakeTransport(bind=NotSent("bind", URL, "")).extender()).bind({}, POD, "n1", FENCE)


@pytest.mark.parametrize("failure", [NotSent, ResponseLost, ExtenderError])
async def test_ignorable_extender_failure_uses_the_next_binder(failure: type[ExtenderError]) -> None:
    extender = FakeTransport(bind=failure("bind", URL, "")).extender(ignorable=True)
    assert await ExtenderBinder(extender).bind({}, POD, "n1", FENCE) is SKIP
