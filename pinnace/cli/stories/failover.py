"""Act one: the leading scheduler dies, three times, while pods come in."""

import asyncio
import signal
from importlib.resources import files

from pinnace.api.elections_pb2 import Election
from pinnace.api.manifest import load as load_manifests
from pinnace.bench.failover import (
    LEADER_TIMEOUT,
    Failover,
    VacancyLog,
    bring_back,
    end_of_term,
    hit_leader,
    is_fenced,
    present_leader,
    timeline,
    trickle,
)
from pinnace.bench.load import Load
from pinnace.bench.witness import BOUND, RUNNING, History, Witness, witnessing
from pinnace.cli.stories.story import Judgement, Story
from pinnace.cli.terminal.table import Table
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ELECTION

TIMES = 3
TRICKLE = 10
"""Pods to a call, while they come in."""
EXAMPLE = "demo.yaml"
PATIENCE_GAP = 1.0
"""Seconds within which the next leader must have bound a pod, for the verdict. (Kubernetes' defaults make it 15 or more.)"""


async def failover(story: Story, cluster: Cluster, client: Client) -> list[Judgement]:
    async with witnessing(client) as witness:
        applied = await _apply(story, client, witness)
        load, failovers, fenced = Load(), list[Failover](), list[bool]()
        story.chapter(
            f"The leader dies, {TIMES} times",
            "Pods come in all the while. Nothing is announced: kill -9, and the kernel closes its connections.",
        )
        for turn in range(1, TIMES + 1):
            story.steps.waiting(f"failover {turn} of {TIMES}")
            failovers.append(await _hit(story, cluster, client, witness, load))
            fenced.append(await _act_for(story, client, failovers[-1].old))
        story.steps.waiting("the last pods to be bound")
        await witness.reached(BOUND, len(load.uids) + len(applied), LEADER_TIMEOUT)
    return judge(witness.history, applied + load.uids, failovers, fenced)


async def _apply(story: Story, client: Client, witness: Witness) -> list[str]:
    """Creates the example's pods and waits until they run; their uids."""
    text = files("pinnace.cli.stories").joinpath(EXAMPLE).read_text()
    story.chapter("A few pods", "What a manifest says, the scheduler gives a node and the kubelet runs.")
    pods = [await client.of(manifest.resource).create(manifest.obj) for manifest in load_manifests(text, EXAMPLE)]
    await witness.reached(RUNNING, len(pods), LEADER_TIMEOUT)
    found = await client.pods.list("default")
    rows = [(pod.metadata.name, pod.status.phase, pod.spec.nodeName, pod.status.podIP) for pod in found.items]
    for line in Table(["NAME", "STATUS", "NODE", "IP"]).render(rows).splitlines():
        story.line(line)
    return [pod.metadata.uid for pod in pods]


async def _hit(story: Story, cluster: Cluster, client: Client, witness: Witness, load: Load) -> Failover:
    vacancy = VacancyLog()
    recording = asyncio.create_task(vacancy.record(client))
    try:
        async with trickle(load, client, pods=TRICKLE):
            found = await hit_leader(cluster, client, witness, signal.SIGKILL)
    finally:
        recording.cancel()
        await asyncio.wait((recording,))
    pid = cluster.state.find(found.old.holder).pid
    story.line("")
    story.line(f"t = 0 ms       kill -9 {pid}: {found.old.holder}, which led with token {found.old.token}", "bold")
    seen = vacancy.seen
    if seen is None:  # the next leader was there already when somebody asked: the history of the election knows more
        seen = end_of_term(await client.elections.history(ELECTION), found)
    for moment in timeline(found, await present_leader(client), seen):
        story.moment(moment.at, moment.what)
    story.steps.waiting(f"{found.old.holder} to be back")
    await bring_back(cluster, found.old.holder, signal.SIGKILL)
    story.line(f"               {found.old.holder} is started again, and stands by")
    return found


async def _act_for(story: Story, client: Client, deposed: Election) -> bool:
    """Binds a pod in the name of a leader that is no more: the fence must refuse it."""
    nodes = await client.nodes.list(page_size=1)
    fenced = await is_fenced(client, deposed, nodes.items[0].metadata.name)
    verdict = "is refused by the fence" if fenced else "was NOT refused"
    story.line(f"               a bind with the old token {deposed.token} {verdict}", "" if fenced else "bold red")
    return fenced


def judge(history: History, acknowledged: list[str], failovers: list[Failover], fenced: list[bool]) -> list[Judgement]:
    """Pure. Every line must be good."""
    violations = history.violations(acknowledged)
    gaps = [failover.gap for failover in failovers]
    return [
        Judgement(violations["lost"] == 0, "pods lost", f"{violations['lost']} of {len(acknowledged):,}"),
        Judgement(violations["bound_twice"] == 0, "pods bound twice", str(violations["bound_twice"])),
        Judgement(violations["bound_by_deposed"] == 0, "pods bound by a deposed leader", str(violations["bound_by_deposed"])),
        Judgement(all(fenced), "binds with an old token refused", f"{sum(fenced)} of {len(fenced)}"),
        Judgement(
            len(gaps) == TIMES and max(gaps) <= PATIENCE_GAP,
            "from kill to the next leader's bind",
            ", ".join(f"{gap * 1000:.0f} ms" for gap in gaps),
        ),
    ]
