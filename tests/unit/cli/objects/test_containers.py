"""Which containers `pinnace logs` and `pinnace exec` mean."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, Pod, Service
from pinnace.api.meta_v1_pb2 import ObjectMeta, Time
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import DEPLOYMENTS, NODES, PERSISTENT_VOLUME_CLAIMS, POD_DISRUPTION_BUDGETS, PODS, SERVICES
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION
from pinnace.cli.outcomes import Failure
from pinnace.cli.session import Session
from pinnace.cli.verbs.logs import default_container, pods_of
from tests.builders import make_node, make_pod
from tests.unit.cli.fakes import FakeApi


def pod(name: str, phase: str = "Running", *containers: str) -> Pod:
    builder = make_pod(name).label("app", "web")
    made = builder.build()
    for each in containers or ("main",):
        made.spec.containers.add(name=each)
    made.status.phase = phase
    return made


@pytest.fixture
async def session() -> Session:
    """With a deployment of three pods, of which the first does not run yet, and another that has none."""
    api = FakeApi()
    for each in (pod("web-0", "Pending"), pod("web-1"), pod("web-2")):
        await api.of(PODS).create(each)
    for name, app in (("web", "web"), ("idle", "idle")):
        deployment = Deployment()
        deployment.metadata.name, deployment.metadata.namespace = name, "default"
        deployment.spec.selector.matchLabels["app"] = app
        await api.of(DEPLOYMENTS).create(deployment)
    await api.of(NODES).create(make_node("n").build())
    for kind, message in (
        (SERVICES, Service()),
        (PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim()),
        (POD_DISRUPTION_BUDGETS, PodDisruptionBudget()),
    ):
        for name in ("web", "empty"):
            made = cast(Any, type(message)())
            made.metadata.name, made.metadata.namespace = name, "default"
            selector = made.spec.selector if kind is SERVICES else made.spec.selector.matchLabels
            selector.update({"app": "web"} if name == "web" else {})
            await api.of(kind).create(made)
    await api.of(DEPLOYMENTS).create(Deployment(metadata=ObjectMeta(name="empty", namespace="default")))
    client = SimpleNamespace(pods=api.of(PODS), of=api.of)
    return cast(Session, SimpleNamespace(client=client, namespace="default"))


async def names(session: Session, what: str, labels: str = "") -> list[str]:
    return [each.metadata.name for each in await pods_of(session, what, labels)]


async def test_a_pod_is_named_or_selected(session: Session) -> None:
    assert await names(session, "web-2") == await names(session, "pod/web-2") == ["web-2"]
    assert await names(session, "", "app=web") == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("kind", ["deployment", "service"])
async def test_running_pod_of_a_workload_is_selected(session: Session, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await names(session, f"{kind}/web") == ["web-1"]
    assert capsys.readouterr().err == "note: found 3 pods, using pod/web-1\n"


@pytest.mark.parametrize(
    ("ready", "chosen"),
    [
        ({"web-0": 1, "web-1": 0, "web-2": 7}, "web-2"),
        ({"web-1": 9, "web-2": 7}, "web-2"),
        ({"web-1": 7, "web-2": 7}, "web-1"),
    ],
)
async def test_a_pod_that_is_ready_is_preferred_and_of_these_the_longest(
    session: Session, ready: dict[str, int], chosen: str
) -> None:
    """Since when; 0 is not."""
    for each in (await session.client.pods.list("default")).items:
        since = ready.get(each.metadata.name, 0)
        each.status.conditions.add(type="Ready", status=str(bool(since)), lastTransitionTime=Time(seconds=since))
        await cast(Any, session.client.pods).put(each)
    assert await names(session, "deployment/web") == [chosen]


async def test_a_pod_that_stays_is_preferred_to_one_that_ends(session: Session) -> None:
    """In a rollout the old ones are those that have been ready for longest."""
    for each in (await session.client.pods.list("default")).items:
        name = each.metadata.name
        since = Time(seconds={"web-0": 0, "web-1": 1, "web-2": 9}[name])
        each.status.phase = "Running"
        each.status.conditions.add(type="Ready", status=str(since.seconds > 0), lastTransitionTime=since)
        if name == "web-1":
            each.metadata.deletionTimestamp.seconds = 20
        await cast(Any, session.client.pods).put(each)
    assert await names(session, "deployment/web") == ["web-2"]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("deploy/idle", "has no pods"),
        ("node/n", "has no pods of its own"),
        ("pvc/web", "has no pods of its own"),
        ("pdb/web", "has no pods of its own"),
        ("deploy/empty", "selects no pods"),
        ("svc/empty", "selects no pods"),
    ],
)
async def test_kind_without_pods_is_refused(session: Session, what: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        await names(session, what)


def test_default_container_is_noted_when_there_are_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert default_container(pod("a")) == "main"
    assert capsys.readouterr().err == ""
    several = pod("a", "Running", "app", "sidecar")
    assert default_container(several) == "app"
    assert capsys.readouterr().err == 'note: defaulted container "app" out of: app, sidecar\n'
    several.metadata.annotations[DEFAULT_CONTAINER_ANNOTATION] = "sidecar"
    assert default_container(several) == "sidecar"
