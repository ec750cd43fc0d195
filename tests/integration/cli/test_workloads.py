"""The verbs for workloads and for emptying nodes, end to end; there are no controllers."""

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, REPLICA_SETS
from pinnace.api.rollouts import REVISION_ANNOTATION
from pinnace.client.client import Client
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import Commands
from tests.workloads import make_deployment, make_replica_set


async def deployed(client: Client) -> Deployment:
    """A deployment of revision 2, with the replica sets of both."""
    web = make_deployment("web", replicas=2, image="app:2")
    web.metadata.uid = web.metadata.resourceVersion = ""
    web.metadata.annotations[REVISION_ANNOTATION] = "2"
    stored = await client.of(DEPLOYMENTS).create(web)
    for number in (1, 2):
        each = make_replica_set(f"web-{number}")
        each.metadata.uid = each.metadata.resourceVersion = ""
        each.metadata.annotations[REVISION_ANNOTATION] = str(number)
        each.spec.template.spec.containers[0].image = f"app:{number}"
        each.metadata.ownerReferences.add(
            kind="Deployment", apiVersion="apps/v1", name="web", uid=stored.metadata.uid, controller=True
        )
        await client.of(REPLICA_SETS).create(each)
    return stored


async def test_scale(pinnace: Commands, client: Client) -> None:
    await deployed(client)
    done = await pinnace("scale", "deployment/web", "rs/web-1", "--replicas", "5")
    assert (done.code, done.lines) == (0, ["deployment.apps/web scaled", "replicaset.apps/web-1 scaled"])
    assert (await client.of(DEPLOYMENTS).get("web", "default")).spec.replicas == 5
    done = await pinnace("scale", "deployment", "web", "--replicas", "1", "--current-replicas", "2")
    assert (
        done.code == 4
        and "Expected replicas to be 2, was 5" in done.err
        and done.errors[1] == "hint: the object was not changed"
    )
    assert (await pinnace("scale", "pod/a", "--replicas", "1")).code == 2


async def test_rollouts(pinnace: Commands, client: Client) -> None:
    await deployed(client)
    history = await pinnace("rollout", "history", "deployment/web")
    assert [line.split() for line in history.lines[:4]] == [
        ["deployment.apps/web"], ["REVISION", "CHANGE-CAUSE"], ["1", "<none>"], ["2", "<none>"],
    ]  # fmt: skip
    assert (await pinnace("rollout", "undo", "deployment/web")).lines == ["deployment.apps/web rolled back"]
    assert len([line for line in (await pinnace("rollout", "undo", "deploy/nope")).errors if "not found" in line]) == 1
    undone = await client.of(DEPLOYMENTS).get("web", "default")
    assert undone.spec.template.spec.containers[0].image == "app:1"

    assert (await pinnace("rollout", "pause", "deploy/web")).lines == ["deployment.apps/web paused"]
    assert "can't restart paused deployment" in (await pinnace("rollout", "restart", "deploy/web")).err

    async with pinnace.start("rollout", "status", "deploy/web") as running:
        assert await running.line() == "Waiting for deployment spec update to be observed..."
        web = await client.of(DEPLOYMENTS).get("web", "default")
        web.status.observedGeneration = web.metadata.generation
        web.status.replicas = web.status.updatedReplicas = 2
        web.status.readyReplicas = web.status.availableReplicas = 1
        web = await client.of(DEPLOYMENTS).update_status(web)
        line = 'Waiting for deployment "web" rollout to finish: 1 of 2 updated replicas are available...'
        assert await running.line() == line
        web.status.readyReplicas = web.status.availableReplicas = 2
        await client.of(DEPLOYMENTS).update_status(web)
        done = await running.end()
        assert (done.code, done.lines) == (0, ['deployment "web" successfully rolled out'])
    await pinnace("label", "deploy/web", "tier=front", "--overwrite=true")
    now = await pinnace("rollout", "status", "-w=false", "deployments", "-l", "tier=front")
    assert (now.code, now.lines) == (0, ['deployment "web" successfully rolled out'])


async def test_drain_waits_for_budgets_and_takes_nothing_that_would_be_lost(pinnace: Commands, client: Client) -> None:
    for name in ("n1", "n2"):
        await client.nodes.create(make_node(name).new())
    for name in ("a", "b"):
        pod = make_pod(name).req(cpu="1").label("app", "web").owner("ReplicaSet", "web", "uid-web").node("n1").new()
        pod.metadata.ownerReferences[0].apiVersion, pod.spec.terminationGracePeriodSeconds = "apps/v1", 0
        stored = await client.pods.create(pod)
        stored.status.phase = "Running"
        stored.status.conditions.add(type="Ready", status="True")
        await client.pods.update_status(stored)
    await client.pods.create(make_pod("bare").req(cpu="1").node("n2").new())
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default"))
    budget.spec.selector.matchLabels["app"] = "web"
    budget.spec.minAvailable.intVal = 1
    budget = await client.of(POD_DISRUPTION_BUDGETS).create(budget)
    budget.status.observedGeneration, budget.status.disruptionsAllowed = 1, 1
    await client.of(POD_DISRUPTION_BUDGETS).update_status(budget)

    done = await pinnace("drain", "n2")
    assert done.code == 4 and done.lines == ["node/n2 cordoned"]
    assert "cannot delete Pods that declare no controller (use --force to override): default/bare" in done.err
    assert "it stays cordoned: `pinnace uncordon n2`" in done.err

    late = await pinnace("drain", "n1", "--timeout", "3s")
    assert late.code == 6
    (told,) = [line for line in late.errors if line.startswith("evicted from n1 before the end: default/")]
    assert told.endswith(" (1 of 2 pods)")

    async with pinnace.start("drain", "n1") as running:
        assert await running.line() == "node/n1 already cordoned"
        while "will retry after" not in (line := await running.error()):
            assert line.startswith("evicting pod default/")
        assert "violate the pod's disruption budget. The disruption budget b needs " in line
        assert len((await client.pods.list("default", labels="app=web")).items) == 1
        budget = await client.of(POD_DISRUPTION_BUDGETS).get("b", "default")
        budget.status.disruptionsAllowed = 1
        await client.of(POD_DISRUPTION_BUDGETS).update_status(budget)
        done = await running.end()
    assert (done.code, done.lines[-1]) == (0, "node/n1 drained")
    assert (await pinnace("drain", "n2", "--force", "--grace-period", "0")).lines[-2:] == [
        "pod/bare evicted",
        "node/n2 drained",
    ]
