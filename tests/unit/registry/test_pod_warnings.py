"""What is taken and does not do what it seems to: told to whoever asked for it."""

import asyncio

import pytest
from google.protobuf.json_format import ParseDict

from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import PodSpec
from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategy import MAX_WARNINGS, add_warnings, collect_warnings
from pinnace.apiserver.registry.validation.pods import spec_warnings
from pinnace.apiserver.server import ApiServer
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.workloads import make_deployment

NODE_AFFINITY = "spec.affinity.nodeAffinity"
ASKS_FOR_LITTLE = {"resources": {"requests": {"storage": {"string": "10m"}}}}


def container(**fields: object) -> dict[str, object]:
    return {"containers": [{"name": "c", "image": "i", **fields}]}


def selector(key: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        (container(env=[{"name": "A", "value": "b"}], resources={"requests": {"memory": {"string": "1Mi"}}}), []),
        (
            container(env=[{"name": "A"}, {"name": "B"}, {"name": "A"}, {"name": "B", "value": "$(B):/b"}]),
            ['spec.containers[0].env[2]: hides the previous definition of "A"'],
        ),
        (
            {
                "volumes": [{"name": "b", "volumeSource": {"secret": {}}}],
                **container(envFrom=[{"configMapRef": {}}], env=[{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}]),
            },
            [],
        ),
        (
            container(resources={"limits": {"memory": {"string": "128m"}, "cpu": {"string": "100m"}}}),
            ['spec.containers[0].resources.limits[memory]: "128m" is in thousandths of a byte; did you mean "128M"?'],
        ),
        (
            {"volumes": [{"name": "v", "volumeSource": {"ephemeral": {"volumeClaimTemplate": {"spec": ASKS_FOR_LITTLE}}}}]},
            [
                "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: "
                '"10m" is in thousandths of a byte; did you mean "10M"?'
            ],
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "zone"}], "overhead": {"memory": {"string": "1m"}}},
            [
                "spec.topologySpreadConstraints[0]: a constraint without labelSelector counts no pods and has no effect",
                'spec.overhead[memory]: "1m" is in thousandths of a byte; did you mean "1M"?',
            ],
        ),
        (
            {
                "nodeSelector": {"beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"},
                "topologySpreadConstraints": [{"topologyKey": "failure-domain.beta.kubernetes.io/zone", "labelSelector": {}}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [selector("a"), selector("beta.kubernetes.io/arch")]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "preference": selector("beta.kubernetes.io/instance-type")}
                        ],
                    }
                },
            },
            [
                'spec.nodeSelector[beta.kubernetes.io/os]: "beta.kubernetes.io/os" is deprecated; use "kubernetes.io/os"',
                "spec.topologySpreadConstraints[0].topologyKey: "
                '"failure-domain.beta.kubernetes.io/zone" is deprecated; use "topology.kubernetes.io/zone"',
                f"{NODE_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0].key: "
                '"beta.kubernetes.io/arch" is deprecated; use "kubernetes.io/arch"',
                f"{NODE_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: "
                '"beta.kubernetes.io/instance-type" is deprecated; use "node.kubernetes.io/instance-type"',
            ],
        ),
    ],
)
def test_pod_warnings(spec: dict[str, object], warnings: list[str]) -> None:
    assert list(spec_warnings(ParseDict(spec, PodSpec()), "spec")) == warnings


@pytest.mark.parametrize(
    ("name", "problem"), [("web", ""), ("web.v1", "must not contain dots"), ("w" * 64, "must be no more than 63 characters")]
)
def test_name_that_is_no_host_name(name: str, problem: str) -> None:
    """With dots, or of more than 63 characters, it is misread there, or cut."""
    told = ", which can result in surprising behavior; a DNS label is recommended: "
    deployment, replica_set, job = make_deployment(name), ReplicaSet(), Job()
    replica_set.metadata.name = job.metadata.name = name
    for resource, obj, use in (
        (PODS, make_pod(name).new(), "the Pod's hostname"),
        (DEPLOYMENTS, deployment, "Pod names and hostnames"),
        (REPLICA_SETS, replica_set, "Pod names and hostnames"),
        (JOBS, job, "Pod names and hostnames"),
    ):
        expected = [f"metadata.name: this is used in {use}{told}[{problem}]"] if problem else []
        assert list(STRATEGIES[resource.plural].warnings(obj)) == expected


def test_warnings_are_deduplicated_and_limited() -> None:
    with collect_warnings() as gathered:
        for _ in range(1000):
            add_warnings(["alike"])
        add_warnings(map(str, range(1000)))
    assert list(gathered) == ["alike", *map(str, range(MAX_WARNINGS - 1))]
    add_warnings(["to nobody"])


async def test_update_warns_about_new_fields_only() -> None:
    server = ApiServer(MemoryStorage())
    at = await server.start("127.0.0.1:0")
    running = asyncio.ensure_future(server.run())
    told = list[str]()
    connection = Connection([at], on_warning=told.append)
    client = Client(connection)
    try:
        pod = make_pod("a").new()
        pod.spec.containers.add(name="c", image="app:1").env.add(name="A")
        await client.of(PODS).create(pod)
        assert told == []
        pod.spec.containers[0].env.add(name="A")
        pod.metadata.name = "b"
        await client.of(PODS).create_batch([pod])
        assert told == ['spec.containers[0].env[1]: hides the previous definition of "A"']
        told.clear()

        deployment = make_deployment("web")
        deployment.metadata.resourceVersion = ""
        deployment.spec.template.spec.nodeSelector["beta.kubernetes.io/os"] = "linux"
        await client.of(DEPLOYMENTS).create(deployment, dry_run=True)
        assert len(told) == 1 and told[0].startswith("spec.template.spec.nodeSelector[")
        deployment = await client.of(DEPLOYMENTS).create(deployment)
        told.clear()
        deployment.spec.replicas += 1
        deployment = await client.of(DEPLOYMENTS).update(deployment)
        assert told == [], "it was told when the template was new"
        deployment.spec.template.spec.containers[0].env.add(name="A")
        deployment.spec.template.spec.containers[0].env.add(name="A")
        await client.of(DEPLOYMENTS).update(deployment)
        assert told == ['spec.template.spec.containers[0].env[1]: hides the previous definition of "A"']
    finally:
        await connection.close()
        await server.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
