"""Which pods of a node may go."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from apiserver.errors import contended
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.resources import NODES, PODS
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import ExitCode, Reported
from pinnace.cli.session import Session
from pinnace.cli.settings import Settings
from pinnace.cli.verbs import drain
from pinnace.cli.verbs.drain import MIRROR_ANNOTATION, DrainOptions, drain_all, drain_node, sort_out
from pinnace.cli.waiting import PendingDeletion
from pinnace.client.config import ClientConfig
from pinnace.client.errors import Forbidden
from pinnace.client.resource import Listing
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.cli.fakes import FakeApi
from tests.workloads import named


def owned(name: str) -> PodBuilder:
    return make_pod(name).owner("ReplicaSet", "web")


def with_data(builder: PodBuilder) -> Pod:
    pod = builder.build()
    pod.spec.volumes.add(name="data").volumeSource.emptyDir.SetInParent()
    return pod


def test_pods_that_come_again_go_and_mirror_pods_stay() -> None:
    found = sort_out([owned("a").build(), make_pod("m").annotation(MIRROR_ANNOTATION, "x").build()], DrainOptions())
    assert (named(found.evict), found.warnings, found.obstacles) == (["a"], [], [])


@pytest.mark.parametrize(
    ("pod", "how", "what"),
    [
        (make_pod("a").build(), DrainOptions(force=True), "Pods that declare no controller"),
        (with_data(owned("a")), DrainOptions(delete_empty_dirs=True), "Pods with local storage"),
    ],
)
def test_drain_needs_flags_for_data_loss(pod: Pod, how: DrainOptions, what: str) -> None:
    [obstacle] = sort_out([pod], DrainOptions()).obstacles
    assert obstacle.startswith(f"cannot delete {what} (use --") and obstacle.endswith("default/a")
    found = sort_out([pod], how)
    assert (found.obstacles, found.warnings) == ([], [f"deleting {what}: default/a"])


def test_terminated_pod_is_drained() -> None:
    found = sort_out([with_data(make_pod("a").phase("Succeeded")), make_pod("b").phase("Failed").build()], DrainOptions())
    assert (named(found.evict), found.obstacles) == (["a", "b"], [])


async def test_a_pod_that_changes_while_it_is_evicted_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pod, outcomes = owned("a").node("n").build(), [[BatchItem(error=encode(contended(PODS, "a")))], [BatchItem()]]
    session, gone = session_of(monkeypatch, [pod], outcomes)
    await drain_node(session, "n", DrainOptions())
    assert ([each.name for each in gone], outcomes) == (["a"], [])


def session_of(
    monkeypatch: pytest.MonkeyPatch, pods: list[Pod], outcomes: list[list[BatchItem]]
) -> tuple[Any, list[PendingDeletion]]:
    """With the answers to evictions, which are taken from `outcomes`, and what is waited for. No time passes."""
    gone: list[PendingDeletion] = []

    async def listed(**selected: str) -> Listing[Pod]:
        return Listing(pods, 1)

    async def evict_batch(evictions: Sequence[Eviction]) -> list[BatchItem]:
        return outcomes.pop(0)

    async def wait_until_gone(session: Any, evicted: Sequence[PendingDeletion]) -> None:
        gone.extend(evicted)

    async def at_once(seconds: float) -> None:
        assert seconds > 0

    monkeypatch.setattr(drain, "wait_until_gone", wait_until_gone)
    monkeypatch.setattr(drain.asyncio, "sleep", at_once)
    session: Any = SimpleNamespace(client=SimpleNamespace(pods=SimpleNamespace(list=listed, evict_batch=evict_batch)))
    return session, gone


async def test_a_pod_that_may_not_go_at_all_keeps_back_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = BatchItem(error=encode(Refusal(Code.PERMISSION_DENIED, "Forbidden", "a webhook says no")))
    later = BatchItem(error=encode(contended(PODS, "c")))
    pods = [owned(name).node("n").build() for name in "abc"]
    session, gone = session_of(monkeypatch, pods, [[never, BatchItem(), later], [BatchItem()]])
    failed: list[tuple[str, str]] = []
    session.failed = lambda error, where: failed.append((where, str(error)))
    await drain_node(session, "n", DrainOptions())
    assert failed == [('error when evicting pods/"a" -n "default"', "a webhook says no")]
    assert [each.name for each in gone] == ["b", "c"]
    assert capsys.readouterr().out.splitlines() == ["pod/b evicted", "pod/c evicted"]


async def test_a_namespace_in_which_one_may_not_evict_keeps_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission is asked for all pods of a call together."""
    pods = [
        make_pod("a", "mine").owner("ReplicaSet", "web").node("n").build(),
        make_pod("b", "other").owner("ReplicaSet", "web").node("n").build(),
    ]
    session, gone = session_of(monkeypatch, pods, [])

    async def evict_batch(evictions: Sequence[Eviction]) -> list[BatchItem]:
        if any(each.metadata.namespace == "other" for each in evictions):
            raise Forbidden(Refusal(Code.PERMISSION_DENIED, "Forbidden", "not there"))
        return [BatchItem() for _ in evictions]

    session.client.pods.evict_batch = evict_batch
    failed: list[str] = []
    session.failed = lambda error, where: failed.append(f"{where}: {error}")
    await drain_node(session, "n", DrainOptions())
    assert failed == ['error when evicting pods/"b" -n "other": not there']
    assert [each.name for each in gone] == ["a"]


async def test_drain_names_a_blocking_budget_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(needs: int) -> list[BatchItem]:
        facts = (("cause", f"The disruption budget web needs {needs} healthy pods and has 1 currently"),)
        no = Refusal(Code.RESOURCE_EXHAUSTED, "TooManyRequests", "Cannot evict.", retry_after=0.5, metadata=facts)
        return [BatchItem(error=encode(no))]

    pod = owned("a").node("n").build()
    session, _ = session_of(monkeypatch, [pod], [refused(1), refused(1), refused(2), refused(2), [BatchItem()]])
    await drain_node(session, "n", DrainOptions())
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error when evicting")]
    assert said == [
        'error when evicting pods/"a" -n "default" (will retry after 0.5s): Cannot evict. '
        f"The disruption budget web needs {needs} healthy pods and has 1 currently"
        for needs in (1, 2)
    ]
    assert "disruption budget web" in session.waiting_for and "`pinnace get pdb -n default`" in session.waiting_for
    monkeypatch.setattr(drain, "REMINDER", 0.0)
    session, _ = session_of(monkeypatch, [pod], [refused(1), refused(1), [BatchItem()]])
    await drain_node(session, "n", DrainOptions())
    assert capsys.readouterr().err.count("error when evicting") == 2


async def test_no_node_is_emptied_when_one_of_them_is_not_there() -> None:
    api = FakeApi()
    await api.of(NODES).put(make_node("n").build())
    settings, config, limit = Settings(), ClientConfig(("h:1",)), asyncio.timeout(None)
    async with limit:
        session = Session(settings, config, api.client(), limit)
        with pytest.raises(Reported) as caught:
            await drain_all(session, Query.of(["nodes", "n", "nope"]), DrainOptions())
    assert caught.value.code is ExitCode.NOT_FOUND
    assert not (await api.of(NODES).get("n")).spec.unschedulable
