"""Actions of timeline viewers: the API servers authorize them and execute them as the viewer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from pinnace.api.authorization_pb2 import AccessReview, SelfSubjectAccessReviewRequest
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.elections_pb2 import Election, TransferElectionRequest, TransferElectionResponse
from pinnace.api.resources import election_key
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest, PatchRequest
from pinnace.api.wellknown import FLEET_LABEL
from pinnace.client.connection import Connection
from pinnace.client.errors import Forbidden
from pinnace.gateway.backend import Backend
from pinnace.gateway.http import Request
from pinnace.gateway.timeline import ClusterActions, LocalCluster
from pinnace.history.records import ElectionFacts, StoredChange
from pinnace.timeline.site import ActionError, Viewer
from pinnace.timeline.source import LiveTimelineSource

MASTER, READER = Viewer("admin", ("system:masters",)), Viewer("reader")


class FakeBackend(Backend):
    """An API server that allows everything to system:masters."""

    def __init__(self) -> None:
        super().__init__(Connection(["127.0.0.1:1"]))
        self.calls: list[tuple[str, str, Any]] = []

    async def call(self, request: Request, method: str, message: Message, *, retry: bool = False) -> bytes:
        allowed = "system:masters" in request.user.groups
        if isinstance(message, SelfSubjectAccessReviewRequest):
            return AccessReview(allowed=allowed).SerializeToString()
        if not allowed:
            raise Forbidden(Refusal(Code.PERMISSION_DENIED, "Forbidden", f'user "{request.user.name}" cannot'))
        self.calls.append((request.user.name, method.rpartition(".")[2], message))
        if isinstance(message, TransferElectionRequest):
            return TransferElectionResponse(
                before=Election(holder="scheduler-0"), after=Election(holder="scheduler-1")
            ).SerializeToString()
        node = Node()
        if isinstance(message, GetRequest) and message.name != "machine":
            node.metadata.labels[FLEET_LABEL] = "kubelet-0"
        return node.SerializeToString()


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def source() -> LiveTimelineSource:
    return LiveTimelineSource(Connection(["127.0.0.1:1"]), "test", now=lambda: 5.0)


async def test_permitted_actions_follow_the_api_servers(backend: FakeBackend, source: LiveTimelineSource) -> None:
    actions = ClusterActions(None, source, backend)
    assert await actions.permitted_actions(MASTER) == ("fail", "recover", "transfer"), "process actions need a local cluster"
    assert await actions.permitted_actions(READER) == ()


async def test_transfer_runs_as_the_viewer_and_is_recorded(backend: FakeBackend, source: LiveTimelineSource) -> None:
    assert await ClusterActions(None, source, backend).run(MASTER, "transfer", "scheduler") == "scheduler-1 leads scheduler"
    assert backend.calls == [("admin", "Elections/Transfer", TransferElectionRequest(name="scheduler"))]
    assert source.log.all_items() == [["m", 5.0, 0, 0, "scheduler-0", "action", "admin: transfer scheduler", None, 1]]


async def test_node_fails_and_recovers(backend: FakeBackend, source: LiveTimelineSource) -> None:
    actions = ClusterActions(None, source, backend)
    assert await actions.run(MASTER, "fail", "node-3") == "node-3 failed"
    assert await actions.run(MASTER, "recover", "node-3") == "node-3 recovered"
    patches = [message.patch for _, _, message in backend.calls if isinstance(message, PatchRequest)]
    assert [b'"failed"' in patch for patch in patches] == [True, False] and b"null" in patches[1]
    assert [item[4] for item in source.log.all_items()] == ["nodes", "nodes"]


async def test_refused_action_is_not_recorded(backend: FakeBackend, source: LiveTimelineSource) -> None:
    actions = ClusterActions(None, source, backend)
    for viewer, target, message in (
        (READER, "node-3", 'user "reader" cannot'),
        (MASTER, "machine", "not a virtual node"),
        (MASTER, "--help", "is not the name"),
        (MASTER, "a/../b", "is not the name"),
    ):
        with pytest.raises(ActionError, match=message):
            await actions.run(viewer, "fail", target)
    assert not source.log.all_items() and not any(isinstance(message, PatchRequest) for _, _, message in backend.calls)


class FakeCluster(LocalCluster):
    """scheduler-0 is frozen."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))
        self.commands: list[Sequence[str]] = []

    def frozen_schedulers(self) -> Sequence[str]:
        return ["scheduler-0"]

    async def run(self, arguments: Sequence[str]) -> str:
        self.commands.append(arguments)
        return ""


async def test_leader_stands_for_a_process(backend: FakeBackend, source: LiveTimelineSource) -> None:
    """`resume leader` resumed the present leader and left the frozen one frozen. Its mark was on a lane named "leader"."""
    await source.add(source.translate(StoredChange(5.0, 7, election_key("scheduler"), "", 7, 0, ElectionFacts("scheduler-1"))))
    cluster = FakeCluster()
    actions = ClusterActions(cluster, source, backend)
    assert await actions.run(MASTER, "resume", "leader") == "resumed scheduler-0"
    assert await actions.run(MASTER, "freeze", "leader") == "froze scheduler-1"
    await actions.run(MASTER, "start", "leader")
    assert cluster.commands == [
        ["kill", "scheduler-0", "--signal", "CONT"],
        ["kill", "scheduler-1", "--signal", "STOP"],
        ["start"],
    ]
    assert [item[4] for item in source.log.all_items() if item[0] == "m"] == ["scheduler-0", "scheduler-1", "run"]
