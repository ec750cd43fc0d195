"""Bootstrap objects of a cluster: upgrades between versions, and a store that lost them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import NamespaceList
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, Resource
from pinnace.api.status import Code
from pinnace.api.users import AUTHENTICATED, UNAUTHENTICATED
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth import rbac
from pinnace.apiserver.errors import Rejected
from pinnace.runtime.logs import BootstrapFailed
from tests.logged import logged
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import eventually

PATIENCE = 10.0
SCHEDULER = Caller(PEOPLE["scheduler"])


@pytest.fixture
async def server() -> AsyncIterator[tuple[Assembly, FlakyStorage]]:
    """An API server without a transport."""
    storage = FlakyStorage()
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    async with asyncio.timeout(PATIENCE):
        await assembly.opening.bootstrapped.wait()
    await eventually(lambda: assembly.opening.readiness() is None)
    yield assembly, storage
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


VERSION: ContextVar[str] = ContextVar("version", default="old")
"""The version of the server of the current task."""


@asynccontextmanager
async def servers(storage: MemoryStorage, *versions: str) -> AsyncIterator[list[Assembly]]:
    """API servers that start concurrently and have completed their bootstrap."""
    assemblies, running = [Assembly(storage) for _ in versions], []
    for assembly, version in zip(assemblies, versions, strict=True):
        VERSION.set(version)
        running.append(asyncio.ensure_future(assembly.run()))
    try:
        async with asyncio.timeout(PATIENCE):
            for assembly in assemblies:
                await assembly.opening.bootstrapped.wait()
        yield assemblies
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def found(assembly: Assembly, resource: Resource[Any], name: str) -> Any:
    """A copy of the object from the server's cache."""
    entry = assembly.cacher.cache_of(resource).get(resource.key("", name))
    assert entry is not None
    copy = resource.message()
    copy.CopyFrom(entry.obj)
    return copy


def scheduler_role(assembly: Assembly) -> ClusterRole:
    role: ClusterRole = found(assembly, CLUSTER_ROLES, "system:kube-scheduler")
    return role


async def call(assembly: Assembly, method: str, /, **fields: Any) -> None:
    """Call the method as an administrator."""
    called = assembly.methods[f"/pinnace.v1.{method}"]
    request: Any = type(called.parse(b""))
    await called.call(request(**fields), Caller(PEOPLE["admin"]))


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> PolicyRule:
    """A rule that only the new version has in the role of schedulers."""
    rule = PolicyRule(verbs=["get"], apiGroups=["new"], resources=["things"])
    roles = rbac.cluster_roles

    def of_this_version() -> list[ClusterRole]:
        made = list(roles())
        for role in made:
            if VERSION.get() == "new" and role.metadata.name == "system:kube-scheduler":
                role.rules.append(rule)
        return made

    monkeypatch.setattr(rbac, "cluster_roles", of_this_version)
    return rule


async def test_concurrent_upgraded_servers_extend_a_role_once(newer: PolicyRule, caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    async with servers(storage, "old") as (old,):
        assert newer not in scheduler_role(old).rules
    async with servers(storage, "new", "new") as upgraded:
        await eventually(lambda: all(newer in scheduler_role(server).rules for server in upgraded))
        assert [list(scheduler_role(server).rules).count(newer) for server in upgraded] == [1, 1]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_role_created_by_an_older_server_is_extended(newer: PolicyRule, caplog: pytest.LogCaptureFixture) -> None:
    async with servers(MemoryStorage(), "old", "new") as (_, new):
        await eventually(lambda: newer in scheduler_role(new).rules)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_aggregation_rules_are_completed_and_additions_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_an_older_version() -> list[ClusterRole]:
        made = list(roles())
        for role in made:
            role.ClearField("aggregationRule")
            role.metadata.labels.clear()
            role.metadata.labels["mine"] = "yes"
        return made

    storage, roles = MemoryStorage(), rbac.cluster_roles
    with monkeypatch.context() as patch:
        patch.setattr(rbac, "cluster_roles", of_an_older_version)
        async with servers(storage, "old") as (old,):
            assert not found(old, CLUSTER_ROLES, "edit").HasField("aggregationRule")
    async with servers(storage, "new") as (new,):
        await eventually(lambda: found(new, CLUSTER_ROLES, "edit").HasField("aggregationRule"))
        labels = found(new, CLUSTER_ROLES, "edit").metadata.labels
        assert (labels["mine"], labels["rbac.authorization.k8s.io/aggregate-to-admin"]) == ("yes", "true")


async def test_changes_by_an_administrator_are_kept() -> None:
    """Changed rules and labels stay. A removed autoupdate annotation is restored, as in Kubernetes."""
    storage, part_of = MemoryStorage(), "rbac.authorization.k8s.io/aggregate-to-view"
    name, other = "system:aggregate-to-view", "cluster-view"
    async with servers(storage, "old") as (server,):
        view = found(server, CLUSTER_ROLES, name)
        view.metadata.labels[part_of] = "false"
        view.metadata.annotations.clear()
        del view.rules[:]
        view.rules.add(verbs=["*"], apiGroups=["*"], resources=["*"])
        await call(server, "ClusterRoles/Update", object=view)
        own = found(server, CLUSTER_ROLES, other)
        own.metadata.annotations[rbac.AUTOUPDATE] = "false"
        del own.rules[:]
        await call(server, "ClusterRoles/Update", object=own)
    async with servers(storage, "new") as (server,):
        await eventually(lambda: found(server, CLUSTER_ROLES, name).metadata.annotations[rbac.AUTOUPDATE] == "true")
        after = found(server, CLUSTER_ROLES, name)
        assert after.metadata.labels[part_of] == "false"
        assert after.rules == view.rules, "the rules include the default ones"
        assert not found(server, CLUSTER_ROLES, other).rules
        assert not found(server, CLUSTER_ROLES, "view").rules, "the label no longer selects the role"


async def test_election_permissions_of_an_older_server_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old rule cannot be distinguished from a rule of an administrator.

    After the role is deleted, the next server creates it with the current rule.
    """

    def of_an_older_version() -> list[ClusterRole]:
        made = list(roles())
        for rule in (rule for role in made for rule in role.rules if "elections" in rule.resources):
            rule.ClearField("resourceNames")
        return made

    def elections(server: Assembly) -> list[list[str]]:
        return [list(rule.resourceNames) for rule in scheduler_role(server).rules if "elections" in rule.resources]

    storage, roles = MemoryStorage(), rbac.cluster_roles
    with monkeypatch.context() as patch:
        patch.setattr(rbac, "cluster_roles", of_an_older_version)
        async with servers(storage, "old") as (old,):
            assert elections(old) == [[]]
    async with servers(storage, "new") as (new,):
        assert elections(new) == [[]], "the old rule includes the default one"
        await call(new, "ClusterRoles/Delete", name="system:kube-scheduler")
    async with servers(storage, "new") as (new,):
        assert elections(new) == [["scheduler"]]


@pytest.mark.parametrize(
    ("said", "stays"),
    [
        ({}, False),
        ({"annotations": {rbac.AUTOUPDATE: "true"}}, False),
        ({"annotations": {rbac.AUTOUPDATE: "false"}}, True),
        ({"finalizers": ["example.com/mine"]}, True),
    ],
)
async def test_bootstrap_does_not_bind_users_to_a_changed_role(
    said: dict[str, Any], stays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The default binding is for all authenticated users. They must not get the permissions of the other role."""
    storage, name = MemoryStorage(), "system:public-info-viewer"
    async with servers(storage, "old") as (server,):
        await call(server, "ClusterRoleBindings/Delete", name=name)
        other = ClusterRoleBinding(metadata=ObjectMeta(name=name, **said))
        other.roleRef.kind, other.roleRef.name = "ClusterRole", "cluster-view"
        other.subjects.add(kind="User", name="auditor")
        await call(server, "ClusterRoleBindings/Create", object=other)
    async with servers(storage, "new", "new") as upgraded:
        for server in upgraded:
            await server.cacher.wait_until_fresh(PATIENCE)
            binding = found(server, CLUSTER_ROLE_BINDINGS, name)
            given = binding.roleRef.name, [subject.name for subject in binding.subjects]
            assert given == (("cluster-view", ["auditor"]) if stays else (name, [AUTHENTICATED, UNAUTHENTICATED]))
    assert not logged(caplog, BootstrapFailed)


async def namespaces(assembly: Assembly, caller: Caller) -> set[str]:
    answer = await assembly.methods["/pinnace.v1.Namespaces/List"].call(ListRequest(), caller)
    return {item.metadata.name for item in NamespaceList.FromString(answer).items}


async def test_empty_store_is_bootstrapped_again(server: tuple[Assembly, FlakyStorage]) -> None:
    """Without the default roles, all calls would be forbidden until a restart of the servers."""
    assembly, storage = server
    before = await namespaces(assembly, SCHEDULER)
    storage.leave()
    await eventually(lambda: assembly.opening.readiness() is not None)
    storage.restore(MemoryStorage())
    storage.come_back()
    await eventually(lambda: assembly.opening.readiness() is None)
    assert "default" in before and await namespaces(assembly, SCHEDULER) == before


async def test_calls_are_refused_until_the_bootstrap(server: tuple[Assembly, FlakyStorage]) -> None:
    """Otherwise the client would receive PermissionDenied and give up."""
    assembly, _ = server
    assembly.cacher.install_state(1, ())
    assert assembly.opening.readiness() is not None
    with pytest.raises(Rejected) as rejected:
        await namespaces(assembly, SCHEDULER)
    assert rejected.value.refusal.code is Code.UNAVAILABLE and rejected.value.refusal.reason == "NotReady"
