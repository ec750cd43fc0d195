"""Impersonation at the API server: what the caller needs permission for, and metadata that are refused."""

from collections.abc import Callable, Iterable

import pytest

from pinnace.api.users import Impersonation
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.authorizer import Impersonator, requested_impersonation
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.errors import Rejected
from tests.credentials import Shown

BUILDER = "system:serviceaccount:ci:builder"


class Recorder:
    """An authorizer that allows everything."""

    def __init__(self) -> None:
        self.checks: list[tuple[ResourceAction, ActionTarget]] = []

    async def authorize(self, user: User, action: ResourceAction, targets: Callable[[], Iterable[ActionTarget]]) -> None:
        self.checks += [(action, target) for target in targets()]


async def test_impersonation_of_service_account_checks_its_namespace() -> None:
    """The server checked `impersonate users` for every user."""
    recorder = Recorder()
    gateway = User("gateway")
    credential = await Impersonator(recorder, lambda: 1).impersonate(Shown(gateway), gateway, Impersonation(BUILDER))
    assert recorder.checks == [(ResourceAction("impersonate", "serviceaccounts"), ActionTarget("ci", "builder"))]
    user = credential.user()
    assert (user.name, user.impersonator) == (BUILDER, "gateway")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")


async def test_impersonation_checks_each_named_group() -> None:
    recorder = Recorder()
    eve = User("eve")
    await Impersonator(recorder, lambda: 1).impersonate(Shown(eve), eve, Impersonation("ada", ["dev", "system:authenticated"]))
    groups = [target.name for action, target in recorder.checks if action == ResourceAction("impersonate", "groups")]
    assert groups == ["dev", "system:authenticated"]


async def test_impersonation_is_checked_again_after_change_of_roles() -> None:
    """A permission that was taken away must not be remembered, nor one of another caller, user or group."""
    recorder, versions, eve = Recorder(), [1], User("eve")
    impersonator = Impersonator(recorder, lambda: versions[0])

    async def checks(user: str, *groups: str, caller: User = eve) -> int:
        before = len(recorder.checks)
        await impersonator.impersonate(Shown(eve), caller, Impersonation(user, groups))
        return len(recorder.checks) - before

    assert [await checks("ada", "dev"), await checks("ada", "dev")] == [2, 0]
    assert [await checks("bob", "dev"), await checks("ada", "ops"), await checks("ada")] == [2, 2, 1]
    assert await checks("ada", "dev", caller=User("eve", ("renamed",))) == 2, "the token belongs to another user now"
    versions[0] = 2
    assert await checks("ada", "dev", caller=User("eve", ("renamed",))) == 2


@pytest.mark.parametrize(
    "metadata",
    [
        [("impersonate-user", "ada"), ("impersonate-user", "bob")],
        [("impersonate-group", "dev")],
        [("impersonate-user", ""), ("impersonate-group", "dev")],
    ],
)
def test_ambiguous_metadata_are_refused(metadata: list[tuple[str, str | bytes]]) -> None:
    with pytest.raises(Rejected):
        requested_impersonation(metadata)
