"""`pinnace demo`: stories on a real cluster, with a verdict."""

import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence

import click

from pinnace.bench.calibration import scratch_cluster
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local import running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cli.stories.failover import failover
from pinnace.cli.stories.node_loss import node_loss
from pinnace.cli.stories.story import Judgement, Story
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ClusterSpec

SPEC = ClusterSpec(nodes=100, kubelets=2, controllers=2)
Act = Callable[[Story, Cluster, Client], Awaitable[list[Judgement]]]


@click.group("demo", cls=VerbGroup)
def demo() -> None:
    """Stories that a real cluster tells.

    Each starts a cluster of its own in a temporary folder, and leaves nothing behind. Exit code 10 when the verdict is bad.
    """


@verb("failover", examples="pinnace demo failover")
def failover_verb(settings: Settings) -> None:
    """Kill the leading scheduler three times while pods come in, and judge what became of the pods."""
    play(settings, [failover])


@verb("node-loss", examples="pinnace demo node-loss")
def node_loss_verb(settings: Settings) -> None:
    """Kill a kubelet with half of the nodes, see their pods move, and bring it back."""
    play(settings, [node_loss])


@verb("all", examples="pinnace demo all")
def all_verb(settings: Settings) -> None:
    """All of these stories, one after the other, on one cluster."""
    play(settings, [failover, node_loss])


for command in (failover_verb, node_loss_verb, all_verb):
    demo.add_command(command)


def play(settings: Settings, acts: Sequence[Act]) -> None:
    with running.translated(), Steps(settings) as steps:
        verdict = running.run(_play(Story(settings, steps), acts), hangup=True)
    if not all(line.good for line in verdict):
        raise Failure("the verdict is bad", hint="please report it, with what you see above", code=ExitCode.VERDICT)


async def _play(story: Story, acts: Sequence[Act]) -> list[Judgement]:
    story.chapter(
        "A cluster",
        f"Real processes on this machine: etcd, {SPEC.apiservers} API servers, {SPEC.schedulers} schedulers, "
        f"{SPEC.controllers} controllers, and {SPEC.kubelets} kubelets that play\n{SPEC.nodes} nodes. One scheduler and one of "
        "the controllers lead; the others are ready to.",
    )
    verdict = list[Judgement]()
    async with scratch_cluster(SPEC, story.steps) as cluster, cluster.client() as client:
        for act in acts:
            verdict += await act(story, cluster, client)
        story.steps.waiting("the cluster to end")
    story.chapter("Verdict", "By a witness that has watched every pod from before the first was created:")
    for line in verdict:
        story.judgement(line.good, line.what, line.figure)
    story.line("")
    program = "pinnace" if shutil.which("pinnace") else sys.argv[0]
    story.line(f"Try it yourself: {program} up, then kill -9 any of its processes.")
    return verdict
