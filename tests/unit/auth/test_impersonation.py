"""Impersonation at the API server: what the caller needs permission for, and metadata that are refused."""

from collections.abc import Callable, Iterable

import pytest

from apiserver.auth.authentication import User
from apiserver.auth.authorizer import impersonate, requested
from apiserver.auth.permissions import Action, Target
from apiserver.errors import Rejected
from pinnace.api.users import Impersonation
from tests.credentials import Shown

BUILDER = "system:serviceaccount:ci:builder"


class Recorder:
    """An authorizer that allows everything."""

    def __init__(self) -> None:
        self.checks: list[tuple[Action, Target]] = []

    async def check(self, user: User, action: Action, targets: Callable[[], Iterable[Target]]) -> None:
        self.checks += [(action, target) for target in targets()]


async def test_impersonation_of_service_account_checks_its_namespace() -> None:
    """The server checked `impersonate users` for every user."""
    recorder = Recorder()
    credential = await impersonate(Shown(User("gateway")), Impersonation(BUILDER), recorder)
    assert recorder.checks == [(Action("impersonate", "serviceaccounts"), Target("ci", "builder"))]
    user = credential.user()
    assert (user.name, user.impersonator) == (BUILDER, "gateway")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")


async def test_impersonation_checks_each_named_group() -> None:
    recorder = Recorder()
    await impersonate(Shown(User("eve")), Impersonation("ada", ["dev", "system:authenticated"]), recorder)
    groups = [target.name for action, target in recorder.checks if action == Action("impersonate", "groups")]
    assert groups == ["dev", "system:authenticated"]


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
        requested(metadata)
