"""`pinnace why` and `pinnace sched` on a real cluster: etcd, an API server, a scheduler, a fleet of three nodes."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.client.client import Client
from pinnace.runtime.logs import StateDumped
from tests.builders import make_pod
from tests.integration.conftest import Start
from tests.integration.processes import Component, pinnace
from tests.integration.test_first_story import scheduled, until, until_event

CHEAP = "examples/plugins/cheap.yaml"
PACKING = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]}]
"""


async def run(server: Component, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(pinnace, server.address, *arguments)


async def taint(client: Client, name: str) -> None:
    await client.nodes.modify(name, "", lambda node: _taint(node))


def _taint(node: Node) -> None:
    node.spec.taints.append(Taint(key="gpu", value="true", effect="NoSchedule"))


async def test_why_and_what_the_scheduler_holds(apiserver: Component, client: Client, start: Start, tmp_path: Path) -> None:
    fleet = start("kubelet", "fleet", "--server", apiserver.address, "--nodes", "3", "--node-prefix", "node-")
    await fleet.ready()
    await taint(client, "node-2")
    scheduler = start("scheduler", "scheduler-0", "--server", apiserver.address)
    await scheduler.ready()
    await client.pods.create(make_pod("web").req(cpu="100m").new())
    await client.pods.create(make_pod("whale").req(cpu=64).new())
    web = await until(client, "web", lambda pod: bool(pod.spec.nodeName))
    await until(client, "whale", lambda pod: scheduled(pod).startswith("False"))
    for reason in ("Scheduled", "FailedScheduling"):  # which are told a moment later
        await until_event(client, reason)

    here = await run(apiserver, "why", "pod/web")
    assert here.returncode == 0, here.stderr
    first, second, *_ = here.stdout.splitlines()
    assert first == f"pod default/web is on {web.spec.nodeName}. If it were removed and scheduled again:"
    assert second.startswith(f"Feasible: 2 of 3 nodes. {web.spec.nodeName} has the best score, like 1 other node")
    assert "Successfully assigned default/web" in here.stdout

    why_not = await run(apiserver, "why", "pod", "whale", "--node", "node-2", "-o", "json")
    document = json.loads(why_not.stdout)
    assert document["message"] == "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: true}, 2 Insufficient cpu."
    assert [item["plugin"] for item in document["asked"]["objections"]] == ["TaintToleration", "NodeResourcesFit"]
    assert [event["reason"] for event in document["events"]] == ["FailedScheduling"]

    for arguments, message in [
        (("pod/nobody",), 'Error from server (NotFound): pods "nobody" not found'),
        (("pod/web", "--node", "node-7"), 'error: node "node-7" not found'),
    ]:
        answer = await run(apiserver, "why", *arguments)
        error, hint = answer.stderr.splitlines()
        assert (answer.returncode, error) == (3, message) and hint.startswith("hint: ")

    # Another policy than the leader's is followed only when it is asked for, and the answer says that it differs.
    other = tmp_path / "packing.yaml"
    other.write_text(PACKING)
    given = await run(apiserver, "why", "pod/web", "--config", str(other))
    assert given.stdout.splitlines()[0].endswith(f"uses a configuration other than {other}.")

    queue = await run(apiserver, "sched", "queue", "--http", scheduler.http)
    assert queue.stdout.startswith("scheduler-0: 0 active, 0 backoff, 1 unschedulable, 0 gated, 0 wait in Permit\n")
    dump = await run(apiserver, "sched", "dump", "--http", scheduler.http)
    assert dump.stdout.startswith(
        "scheduler-0: 3 nodes, 1 pods on them, 0 of these assumed\nThe cache and the informers agree.\n"
    )
    scheduler.process.send_signal(signal.SIGUSR2)
    async with asyncio.timeout(10):
        while len(dumped := scheduler.logged(StateDumped)) < 2:  # noqa: ASYNC110 (a file has no events)
            await asyncio.sleep(0.02)
    states = {item.part: item.state for item in dumped}
    assert states.keys() == {"queue", "cache"} and states["cache"]["name"] == "scheduler-0" and states["cache"]["leading"]


async def test_why_follows_the_configuration_of_the_scheduler_that_decides(
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    apiserver: Component,
    client: Client,
    start: Start,
) -> None:
    """With another configuration `why` recomputed with the defaults, and said that chance had chosen. A pod with an unknown
    schedulerName stayed pending without a word (kubernetes#116982)."""
    monkeypatch.chdir(pytestconfig.rootpath)
    await start("kubelet", "fleet", "--server", apiserver.address, "--nodes", "3", "--node-prefix", "node-").ready()
    await start("controllers", "controllers-0", "--server", apiserver.address).ready()
    await client.nodes.modify("node-1", "", lambda node: node.metadata.labels.update(price="3"))
    await start("scheduler", "own", "--server", apiserver.address, "--config", CHEAP).ready()
    await client.pods.create(make_pod("web").req(cpu="100m").scheduler("cheap").new())
    await client.pods.create(make_pod("lost").req(cpu="100m").scheduler("nobody").new())
    await until(client, "web", lambda pod: pod.spec.nodeName == "node-1")

    unread = await run(apiserver, "why", "pod/web")
    assert unread.returncode == 0 and "chance" not in unread.stdout
    assert 'no profile is named "cheap" in the default configuration' in unread.stdout
    assert 'own, which leads election "cheap" and decides, uses a configuration other' in unread.stdout

    here = await run(apiserver, "why", "pod/web", "--config", CHEAP)
    first, second, *_ = here.stdout.splitlines()
    assert first == "pod default/web is on node-1. If it were removed and scheduled again:"
    assert second == "Feasible: 3 of 3 nodes. node-1 has the best score."
    assert "CheapestNode x10" in here.stdout

    said = 'no running scheduler has a profile named "nobody"; profiles: cheap'
    lost = await run(apiserver, "why", "pod/lost")
    assert lost.stdout.splitlines()[0] == f"pod default/lost is pending. Further information is not available: {said}."
    async with asyncio.timeout(60):
        async for batch in client.events.watch("default", fields="involvedObject.name=lost,reason=FailedScheduling"):
            if batch.events:
                break
    assert [event.message for _, event in batch.events] == [said]
