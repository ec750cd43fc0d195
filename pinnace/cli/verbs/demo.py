"""`pinnace demo`: demonstrations on a real cluster, each with a verdict.

The first act kills the leading scheduler three times while pods are created. The second act kills the kubelet that runs half of
the nodes of Deployments, waits until their pods run elsewhere, and starts the kubelet again.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files
from pathlib import Path

import click

from pinnace.api.elections_pb2 import Election
from pinnace.api.manifest import load as load_manifests
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local import running
from pinnace.cli.local.running import Steps, StoryPrinter, VerdictLine
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_note
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.observer import ProcessRecorder
from pinnace.cluster.spec import ELECTION, ClusterSpec
from pinnace.history.records import HistoryError
from pinnace.verification.bench.calibration import scratch_cluster
from pinnace.verification.bench.failover import (
    LEADER_TIMEOUT,
    FailoverResult,
    VacancyLog,
    bring_back,
    build_timeline,
    create_in_background,
    find_end_of_term,
    hit_leader,
    is_fenced,
    present_leader,
)
from pinnace.verification.bench.load import CreatedPods
from pinnace.verification.bench.node_loss import (
    NodeLossResult,
    Outage,
    build_deployment,
    create_deployments,
    kill_fleet,
    nodes_of,
    observe_outage,
    of_a_deployment,
)
from pinnace.verification.bench.witness import BOUND, RUNNING, PodHistory, PodWitness, watch_pods

TIMES = 3
TRICKLE = 10
"""Pods to a call, while they come in."""
EXAMPLE = "demo.yaml"
PATIENCE_GAP = 1.0
"""Seconds within which the next leader must have bound a pod, for the verdict. (Kubernetes' defaults make it 15 or more.)"""
APPS, REPLICAS = ("web", "shop", "mail"), 40
"""Deployments, and pods of each."""
UNREADY_WITHIN = 3.0
"""Seconds within which the nodes must be NotReady, for the verdict. (Kubernetes' defaults make it 40 to 50.)"""
SPEC = ClusterSpec(nodes=100, kubelets=2, controllers=2)
DemoAct = Callable[[StoryPrinter, Cluster, Client], Awaitable[list[VerdictLine]]]
html = click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the timeline as one HTML file."
)


async def demonstrate_failover(story: StoryPrinter, cluster: Cluster, client: Client) -> list[VerdictLine]:
    async with watch_pods(client) as witness:
        applied = await _create_example_pods(story, client, witness)
        load, failovers, fenced = CreatedPods(), list[FailoverResult](), list[bool]()
        story.print_chapter(
            f"The leader dies, {TIMES} times",
            "Pods come in all the while. Nothing is announced: kill -9, and the kernel closes its connections.",
        )
        for turn in range(1, TIMES + 1):
            story.steps.waiting(f"failover {turn} of {TIMES}")
            failovers.append(await _kill_leader(story, cluster, client, witness, load))
            fenced.append(await _bind_with_deposed_token(story, client, failovers[-1].old))
        story.steps.waiting("the last pods to be bound")
        await witness.wait_for_stage(BOUND, len(load.uids) + len(applied), LEADER_TIMEOUT)
    return judge_failover(witness.history, applied + load.uids, failovers, fenced)


async def _create_example_pods(story: StoryPrinter, client: Client, witness: PodWitness) -> list[str]:
    """Create the example's pods, wait until they run, and return their uids."""
    text = files("pinnace.cli").joinpath(EXAMPLE).read_text()
    story.print_chapter("A few pods", "What a manifest says, the scheduler gives a node and the kubelet runs.")
    pods = [await client.of(manifest.resource).create(manifest.obj) for manifest in load_manifests(text, EXAMPLE)]
    await witness.wait_for_stage(RUNNING, len(pods), LEADER_TIMEOUT)
    listing = await client.pods.list("default")
    rows = [(pod.metadata.name, pod.status.phase, pod.spec.nodeName, pod.status.podIP) for pod in listing.items]
    for line in Table(["NAME", "STATUS", "NODE", "IP"]).render(rows).splitlines():
        story.print_line(line)
    return [pod.metadata.uid for pod in pods]


async def _kill_leader(
    story: StoryPrinter, cluster: Cluster, client: Client, witness: PodWitness, load: CreatedPods
) -> FailoverResult:
    vacancy = VacancyLog()
    recording = asyncio.create_task(vacancy.poll_vacancy(client))
    try:
        async with create_in_background(load, client, pods=TRICKLE):
            result = await hit_leader(cluster, client, witness, signal.SIGKILL)
    finally:
        recording.cancel()
        await asyncio.wait((recording,))
    pid = cluster.state.find_process(result.old.holder).pid
    story.print_line("")
    story.print_line(f"t = 0 ms       kill -9 {pid}: {result.old.holder}, which led with token {result.old.token}", "bold")
    seen = vacancy.seen
    if seen is None:  # the next leader was elected before the first read; use the history of the election
        seen = find_end_of_term(await client.elections.list_terms(ELECTION), result)
    for moment in build_timeline(result, await present_leader(client), seen):
        story.print_moment(moment.at, moment.what)
    story.steps.waiting(f"{result.old.holder} to be back")
    await bring_back(cluster, result.old.holder, signal.SIGKILL)
    story.print_line(f"               {result.old.holder} is started again, and stands by")
    return result


async def _bind_with_deposed_token(story: StoryPrinter, client: Client, deposed: Election) -> bool:
    """Bind a pod in the name of a leader that is no more: the fence must refuse it."""
    nodes = await client.nodes.list(page_size=1)
    fenced = await is_fenced(client, deposed, nodes.items[0].metadata.name)
    verdict = "is refused by the fence" if fenced else "was NOT refused"
    story.print_line(f"               a bind with the old token {deposed.token} {verdict}", "" if fenced else "bold red")
    return fenced


def judge_failover(
    history: PodHistory, acknowledged: list[str], failovers: list[FailoverResult], fenced: list[bool]
) -> list[VerdictLine]:
    """Pure. Every line must be good."""
    violations = history.count_violations(acknowledged)
    gaps = [failover.gap for failover in failovers]
    return [
        VerdictLine(violations["lost"] == 0, "pods lost", f"{violations['lost']} of {len(acknowledged):,}"),
        VerdictLine(violations["bound_twice"] == 0, "pods bound twice", str(violations["bound_twice"])),
        VerdictLine(violations["bound_by_deposed"] == 0, "pods bound by a deposed leader", str(violations["bound_by_deposed"])),
        VerdictLine(all(fenced), "binds with an old token refused", f"{sum(fenced)} of {len(fenced)}"),
        VerdictLine(
            len(gaps) == TIMES and max(gaps) <= PATIENCE_GAP,
            "from kill to the next leader's bind",
            ", ".join(f"{gap * 1000:.0f} ms" for gap in gaps),
        ),
    ]


async def demonstrate_node_loss(story: StoryPrinter, cluster: Cluster, client: Client) -> list[VerdictLine]:
    fleet, wanted = cluster.spec.kubelets - 1, len(APPS) * REPLICAS
    outage = Outage(nodes_of(cluster, fleet), counts=of_a_deployment)
    story.print_chapter(
        f"A kubelet dies, and {len(outage.nodes)} nodes with it",
        f"{len(APPS)} Deployments want {REPLICAS} pods each, which stay on a lost node for one second. Again kill -9, and "
        "nothing is announced.",
    )
    async with observe_outage(client, outage) as observer:
        story.steps.waiting(f"{wanted} pods to serve")
        await create_deployments(client, [build_deployment(name, REPLICAS) for name in APPS], observer)
        loss = await kill_fleet(cluster, fleet, wanted, observer, story.steps)
    print_node_loss(story, cluster.state.processes[-1].name, loss, wanted)
    return judge_node_loss(loss, wanted)


def print_node_loss(story: StoryPrinter, name: str, loss: NodeLossResult, wanted: int) -> None:
    story.print_line("")
    story.print_line(
        f"t = 0 ms       kill -9 {loss.pid}: {name}, with {loss.nodes} nodes and {loss.lost} of the {wanted} pods", "bold"
    )
    story.print_moment(loss.all_unready, f"all {loss.nodes} nodes are NotReady; {loss.fewest} pods serve")
    story.print_moment(loss.first_ended, "the first pod is evicted")
    story.print_moment(loss.all_ended, "the last one is")
    story.print_moment(loss.replaced, f"{wanted} pods serve again, all on other nodes")
    story.print_line("")
    story.print_line(f"t = 0 ms       {name} is started again", "bold")
    story.print_moment(loss.ready_again, "its nodes are Ready")
    story.print_moment(loss.cleared, "the pods that it had are gone")


def judge_node_loss(loss: NodeLossResult, wanted: int) -> list[VerdictLine]:
    """Pure. Every line must be good."""
    spared = wanted - loss.lost
    return [
        VerdictLine(loss.all_unready <= UNREADY_WITHIN, "from kill to nodes NotReady", f"{loss.all_unready * 1000:,.0f} ms"),
        VerdictLine(True, "until all pods served again", f"{loss.replaced * 1000:,.0f} ms"),
        VerdictLine(loss.fewest >= spared, "pods that served at the worst moment", f"{loss.fewest} of {spared} on other nodes"),
        VerdictLine(loss.moved == 0, "pods bound to a second node", str(loss.moved)),
    ]


@click.group("demo", cls=VerbGroup)
def demo() -> None:
    """Demonstrate failover on a real cluster.

    Each demo starts a cluster in a temporary folder and removes it at the end. The exit code is 10 when an invariant is
    violated.
    """


@verb("failover", examples="pinnace demo failover")
@html
def failover_verb(settings: Settings, html: Path | None) -> None:
    """Kill the leading scheduler three times while pods are created, and check that no pod is lost or bound twice."""
    play_acts(settings, [demonstrate_failover], html)


@verb("node-loss", examples="pinnace demo node-loss")
@html
def node_loss_verb(settings: Settings, html: Path | None) -> None:
    """Kill a kubelet that runs half of the nodes, watch the pods move, and start the kubelet again."""
    play_acts(settings, [demonstrate_node_loss], html)


@verb("all", examples="pinnace demo all --html demo.html")
@html
def all_verb(settings: Settings, html: Path | None) -> None:
    """Run all demos on one cluster, one after the other."""
    play_acts(settings, [demonstrate_failover, demonstrate_node_loss], html)


for command in (failover_verb, node_loss_verb, all_verb):
    demo.add_command(command)


def play_acts(settings: Settings, acts: Sequence[DemoAct], html: Path | None) -> None:
    if html is not None and not html.parent.is_dir():
        raise usage_failure(f"{html.parent} is not a directory", hint="name a file in a directory that exists")
    with running.translate_cluster_errors(), Steps(settings) as steps:
        verdict = running.run_coroutine(_play_in_order(StoryPrinter(settings, steps), acts, html), hangup=True)
    if not all(line.good for line in verdict):
        raise Failure("an invariant is violated", hint="please report it with the output above", code=ExitCode.VERDICT)


@asynccontextmanager
async def record_timeline(cluster: Cluster, client: Client, html: Path | None) -> AsyncIterator[list[Path]]:
    """Record the cluster meanwhile, and write its timeline to `html`. The yielded list contains the file once it is written;
    a file that cannot be written does not change the verdict. Does nothing if `html` is None."""
    from pinnace.timeline import recording, site
    from pinnace.timeline.source import KeyReader
    from pinnace.verification.check.check import check_history

    written = list[Path]()
    if html is None:
        yield written
        return
    with tempfile.TemporaryDirectory(prefix="pinnace-") as folder:
        history, states = Path(folder) / "history.jsonl", Path(folder) / "processes.jsonl"

        async def follow() -> None:
            async with aclosing(recording.record_cluster(KeyReader(client.connection), history, "pinnace demo")) as changes:
                async for _ in changes:
                    pass

        following = asyncio.create_task(follow())
        try:
            async with ProcessRecorder(lambda: cluster.state.processes, states):
                yield written
        finally:
            following.cancel()
            await asyncio.wait((following,))
        try:
            if not following.cancelled():
                following.result()
            await asyncio.to_thread(
                lambda: html.write_bytes(site.export_page(recording.RecordedSource([history, states], check=check_history)))
            )
            written.append(html)
        except (ApiError, HistoryError, OSError) as error:
            print_note(f"the timeline was not written to {html}: {error}")


async def _play_in_order(story: StoryPrinter, acts: Sequence[DemoAct], html: Path | None = None) -> list[VerdictLine]:
    story.print_chapter(
        "A cluster",
        f"Real processes on this machine: etcd, {SPEC.apiservers} API servers, {SPEC.schedulers} schedulers, "
        f"{SPEC.controllers} controllers, and {SPEC.kubelets} kubelets that play\n{SPEC.nodes} nodes. One scheduler and one of "
        "the controllers lead; the others are ready to.",
    )
    verdict = list[VerdictLine]()
    async with scratch_cluster(SPEC, story.steps) as cluster, cluster.client() as client:
        async with record_timeline(cluster, client, html) as written:
            for act in acts:
                verdict += await act(story, cluster, client)
        story.steps.waiting("the cluster to end")
    story.print_chapter("Verdict", "By a witness that has watched every pod from before the first was created:")
    for line in verdict:
        story.print_verdict_line(line.good, line.what, line.figure)
    story.print_line("")
    program = "pinnace" if shutil.which("pinnace") else sys.argv[0]
    for file in written:
        story.print_line(f"Open its timeline in a browser: {file}")
    story.print_line(f"Try it yourself: {program} up, then kill -9 any of its processes.")
    return verdict
