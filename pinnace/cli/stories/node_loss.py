"""Act two: a kubelet dies with half of the nodes under Deployments, their pods move, and it comes back."""

from pinnace.bench.node_loss import Loss, Outage, deploy, deployment, lose, nodes_of, observing, of_a_deployment
from pinnace.cli.stories.story import Judgement, Story
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster

APPS, REPLICAS = ("web", "shop", "mail"), 40
"""Deployments, and pods of each."""
UNREADY_WITHIN = 3.0
"""Seconds within which the nodes must be NotReady, for the verdict. (Kubernetes' defaults make it 40 to 50.)"""


async def node_loss(story: Story, cluster: Cluster, client: Client) -> list[Judgement]:
    fleet, wanted = cluster.spec.kubelets - 1, len(APPS) * REPLICAS
    outage = Outage(nodes_of(cluster, fleet), counts=of_a_deployment)
    story.chapter(
        f"A kubelet dies, and {len(outage.nodes)} nodes with it",
        f"{len(APPS)} Deployments want {REPLICAS} pods each, which stay on a lost node for one second. Again kill -9, and "
        "nothing is announced.",
    )
    async with observing(client, outage) as observer:
        story.steps.waiting(f"{wanted} pods to serve")
        await deploy(client, [deployment(name, REPLICAS) for name in APPS], observer)
        loss = await lose(cluster, fleet, wanted, observer, story.steps)
    tell(story, cluster.state.processes[-1].name, loss, wanted)
    return judge(loss, wanted)


def tell(story: Story, name: str, loss: Loss, wanted: int) -> None:
    story.line("")
    story.line(
        f"t = 0 ms       kill -9 {loss.pid}: {name}, with {loss.nodes} nodes and {loss.lost} of the {wanted} pods", "bold"
    )
    story.moment(loss.all_unready, f"all {loss.nodes} nodes are NotReady; {loss.fewest} pods serve")
    story.moment(loss.first_ended, "the first pod is evicted")
    story.moment(loss.all_ended, "the last one is")
    story.moment(loss.replaced, f"{wanted} pods serve again, all on other nodes")
    story.line("")
    story.line(f"t = 0 ms       {name} is started again", "bold")
    story.moment(loss.ready_again, "its nodes are Ready")
    story.moment(loss.cleared, "the pods that it had are gone")


def judge(loss: Loss, wanted: int) -> list[Judgement]:
    """Pure. Every line must be good."""
    spared = wanted - loss.lost
    return [
        Judgement(loss.all_unready <= UNREADY_WITHIN, "from kill to nodes NotReady", f"{loss.all_unready * 1000:,.0f} ms"),
        Judgement(True, "until all pods served again", f"{loss.replaced * 1000:,.0f} ms"),
        Judgement(loss.fewest >= spared, "pods that served at the worst moment", f"{loss.fewest} of {spared} on other nodes"),
        Judgement(loss.moved == 0, "pods bound to a second node", str(loss.moved)),
    ]
