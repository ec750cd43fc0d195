"""The checks of lab 11: an operator."""

from collections.abc import Mapping

from pinnace.api.core_v1_pb2 import ConfigMap, Pod
from pinnace.api.resources import CONFIG_MAPS, PODS
from pinnace.api.scalars import to_seconds
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.verification.labs.checks import CheckFailed, list_events, list_terms
from pinnace.verification.labs.lab01 import node_of_running_pod

UNREAD = 3.0
"""Seconds for which the ConfigMap of this lab exists at least before a process acts on it."""
MADE_BY = "made-by"
"""The label of a pod with the process ID of the operator that created it."""


async def _config_map(client: Client) -> ConfigMap:
    try:
        config_map = await client.of(CONFIG_MAPS).get("web", "default")
    except NotFound:
        raise CheckFailed("configmap/web does not exist") from None
    if config_map.metadata.labels.get("operator") != "squad":
        raise CheckFailed("configmap/web has no label operator=squad")
    return config_map


async def _list_pods(client: Client) -> dict[str, Pod]:
    pods = (await client.of(PODS).list("default", labels="squad=web")).items
    return {pod.metadata.name: pod for pod in pods if not pod.metadata.HasField("deletionTimestamp")}


def _all_run(pods: Mapping[str, Pod], size: int) -> None:
    """Raise CheckFailed unless the pods web-0, web-1, ... run. There may be more."""
    for name in (f"web-{number}" for number in range(size)):
        if name not in pods:
            raise CheckFailed(f"pod/{name} does not exist, or does not have the label squad=web")
        node_of_running_pod(pods[name])


async def _require_replacement(client: Client, name: str) -> None:
    """Raise CheckFailed unless two pods with this name have been scheduled."""
    if len({event.involvedObject.uid for event in await list_events(client, "Scheduled", name=name)}) < 2:
        raise CheckFailed(f"pod/{name} was never replaced: it was not deleted, or no operator ran afterwards")


async def check_desire(client: Client) -> str:
    created = to_seconds((await _config_map(client)).metadata.creationTimestamp)
    pods = await _list_pods(client)
    if not pods:
        return "configmap/web exists, and no pod"
    waited = min(to_seconds(pod.metadata.creationTimestamp) for pod in pods.values()) - created
    if waited < UNREAD:
        raise CheckFailed(f"the first pod was created {waited:.0f} s after configmap/web: the operator ran already")
    return f"configmap/web existed for {waited:.0f} s without an effect"


async def check_reconcile(client: Client) -> str:
    owner = (await _config_map(client)).metadata.uid
    pods = await _list_pods(client)
    _all_run(pods, 3)
    for name, each in pods.items():
        if owner not in {reference.uid for reference in each.metadata.ownerReferences}:
            raise CheckFailed(f"pod/{name} has no ownerReference to configmap/web")
    await _require_replacement(client, "web-1")
    return "pod/web-0 to pod/web-2 run, belong to configmap/web, and pod/web-1 was replaced"


async def check_level(client: Client) -> str:
    pods = await _list_pods(client)
    _all_run(pods, 5)
    await _require_replacement(client, "web-2")
    first, *later = (pods[name].metadata.labels.get(MADE_BY, "") for name in ("web-0", "web-2", "web-3", "web-4"))
    if first in later:
        raise CheckFailed(
            f"pods of the second change were created by process {first}, as pod/web-0: the operator was not killed before it"
        )
    return f"process {first} created pod/web-0, and process {later[0]} did the work that it could not do"


async def check_outage(client: Client) -> str:
    expired = [to_seconds(term.ended) for term in await list_terms(client) if term.reason.startswith("lease expired")]
    if not expired:
        raise CheckFailed("no lease of the schedulers has expired: an API server always ran")
    pods = await _list_pods(client)
    _all_run(pods, 6)
    if to_seconds(pods["web-5"].metadata.creationTimestamp) < int(expired[0]):
        raise CheckFailed("pod/web-5 was created before the API servers were killed")
    before, after = (pods[name].metadata.labels.get(MADE_BY, "") for name in ("web-4", "web-5"))
    if before != after:
        raise CheckFailed(f"process {before} created pod/web-4, and process {after} pod/web-5: the operator was started again")
    return f"process {after} created pod/web-5 after all API servers had been away"


async def check_owner(client: Client) -> str:
    if not await list_events(client, "Scheduled", name="extra-0"):
        raise CheckFailed("pod/extra-0 has never been scheduled: the operator did not run, or configmap/extra has another size")
    try:
        await client.of(CONFIG_MAPS).get("extra", "default")
    except NotFound:
        pass
    else:
        raise CheckFailed("configmap/extra exists")
    if left := [item.metadata.name for item in (await client.of(PODS).list("default", labels="squad=extra")).items]:
        raise CheckFailed(f"pod/{left[0]} exists")
    return "configmap/extra and its pods are deleted"


CHECKS = {
    "desire": check_desire,
    "reconcile": check_reconcile,
    "level": check_level,
    "outage": check_outage,
    "owner": check_owner,
}
