"""The checks of lab 10: a service."""

import re

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import DEPLOYMENTS, ENDPOINT_SLICES, PODS, REPLICA_SETS, SERVICES
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.verification.labs.checks import CheckFailed, list_events, list_terms

REPLICAS = 3
VERSION = "VERSION"


async def _get_cluster_ip(client: Client) -> str:
    try:
        service = await client.of(SERVICES).get("web", "default")
    except NotFound:
        raise CheckFailed("service/web does not exist") from None
    if service.spec.clusterIP in ("", "None"):
        raise CheckFailed("service/web has no cluster IP")
    return service.spec.clusterIP


async def _check_endpoints(client: Client) -> None:
    """Return the endpoints. Raises CheckFailed unless the service has as many ready endpoints as the deployment has
    replicas."""
    slices = (await client.of(ENDPOINT_SLICES).list("default", labels="kubernetes.io/service-name=web")).items
    ready = sum(endpoint.conditions.ready for slice_ in slices for endpoint in slice_.endpoints)
    if ready != REPLICAS:
        raise CheckFailed(f"service/web has {ready} ready endpoints, not {REPLICAS}")


async def _get_deployment(client: Client) -> Deployment:
    try:
        return await client.of(DEPLOYMENTS).get("web", "default")
    except NotFound:
        raise CheckFailed("deployment/web does not exist") from None


async def _list_pods(client: Client) -> list[Pod]:
    pods = (await client.of(PODS).list("default", labels="app=web")).items
    return [pod for pod in pods if not pod.metadata.HasField("deletionTimestamp")]


def _version_of(pod: Pod) -> str:
    return next((env_var.value for env_var in pod.spec.containers[0].env if env_var.name == VERSION), "")


async def check_address(client: Client) -> str:
    result = await _get_cluster_ip(client)
    await _check_endpoints(client)
    return f"service/web has the address {result} and {REPLICAS} ready endpoints"


async def check_ready(client: Client) -> str:
    failed = [
        event for event in await list_events(client, "Unhealthy") if re.match(r"[Rr]eadiness.*404", event.message, re.DOTALL)
    ]
    if not failed:
        raise CheckFailed("no readiness probe has failed because a file was missing: `ready` was not deleted")
    if waiting := [pod.metadata.name for pod in await _list_pods(client) if not _is_ready(pod)]:
        raise CheckFailed(f"pod/{waiting[0]} is not ready")
    return f"pod/{failed[0].involvedObject.name} was not ready for a time, and all pods are ready now"


def _is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


async def check_rolling(client: Client) -> str:
    uid = (await _get_deployment(client)).metadata.uid
    sets = (await client.of(REPLICA_SETS).list("default")).items
    versions = sum(uid in {reference.uid for reference in replica_set.metadata.ownerReferences} for replica_set in sets)
    if versions < 2:
        raise CheckFailed(f"deployment/web has had {versions} version: it was not updated")
    pods = await _list_pods(client)
    if old := [pod.metadata.name for pod in pods if _version_of(pod) != "2"]:
        raise CheckFailed(f"pod/{old[0]} does not have version 2")
    if len(pods) != REPLICAS:
        raise CheckFailed(f"deployment/web has {len(pods)} pods, not {REPLICAS}")
    return f"the Deployment has {versions} versions, and its {REPLICAS} pods have version 2"


async def check_zero(client: Client) -> str:
    scaled = [
        event
        for event in await list_events(client, "ScalingReplicaSet", "Deployment", "web")
        if f"from {REPLICAS} to 0" in event.message
    ]
    if not scaled:
        raise CheckFailed("deployment/web was never scaled to 0")
    await _check_endpoints(client)
    return f"deployment/web was scaled to 0, and has {REPLICAS} ready endpoints again"


async def check_outage(client: Client) -> str:
    if not any(term.reason.startswith("lease expired") for term in await list_terms(client)):
        raise CheckFailed("no lease of the schedulers has expired: an API server always ran")
    await _check_endpoints(client)
    return f"all API servers were away, and service/web has {REPLICAS} ready endpoints"


CHECKS = {"address": check_address, "ready": check_ready, "rolling": check_rolling, "zero": check_zero, "outage": check_outage}
