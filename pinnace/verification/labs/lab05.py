"""The checks of lab 5: freeze the leader."""

from itertools import pairwise

from pinnace.api import fences
from pinnace.api.resources import PODS
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.fit import pod_requests
from pinnace.verification.labs.checks import CheckFailed, get_pod, list_terms
from pinnace.verification.labs.lab01 import node_of_running_pod

NODE_CPU = 4000
"""Millicores of a node."""


async def _find_frozen_leader(client: Client) -> tuple[str, str]:
    """Return the holder of the first term that ended without heartbeats, and the next holder."""
    for term, following in pairwise(await list_terms(client)):
        if term.reason.startswith("no heartbeats"):
            return term.holder, following.holder
    raise CheckFailed("no term of the schedulers has ended because of missing heartbeats: no leader was frozen")


async def check_freeze(client: Client) -> str:
    frozen, following = await _find_frozen_leader(client)
    return f"the term of {frozen} ended without heartbeats, and {following} led after it"


async def check_resume(client: Client) -> str:
    frozen, _ = await _find_frozen_leader(client)
    try:
        election = await client.elections.get("scheduler")
    except NotFound:
        raise CheckFailed("the schedulers have no leader") from None
    if election.holder != frozen and frozen not in {candidate.holder for candidate in election.candidates}:
        raise CheckFailed(f"{frozen} is no candidate: it is still frozen, or was killed")
    return f"{frozen} was deposed, and is a candidate again"


async def _list_deposed_binds(client: Client, times: int) -> None:
    result = [term for term in await client.elections.list_terms("late") if term.reason.startswith("no heartbeats")]
    if len(result) < times:
        raise CheckFailed(f'{len(result)} leaders of the election "late" were frozen until their terms ended, expected {times}')


async def check_fence(client: Client) -> str:
    late = await get_pod(client, "late-1")
    if late.spec.nodeName:
        cause = "the bind had no fence, or late.py led when it bound, because it was frozen too early"
        raise CheckFailed(f"pod/late-1 is bound to {late.spec.nodeName}: {cause}")
    if (node := node_of_running_pod(await get_pod(client, "rival-1"))) != "node-0":
        raise CheckFailed(f"pod/rival-1 runs on {node}, not on node-0")
    await _list_deposed_binds(client, 1)
    return 'pod/late-1 has no node, pod/rival-1 runs on node-0, and the leader of election "late" was deposed'


async def check_no_fence(client: Client) -> str:
    late = await get_pod(client, "late-2")
    if not late.spec.nodeName:
        raise CheckFailed("pod/late-2 has no node: the late bind has not arrived, or was refused")
    if fences.fence_of(late).election:
        raise CheckFailed("pod/late-2 was bound with a fence")
    await _list_deposed_binds(client, 2)
    node = late.spec.nodeName
    items = [item for item in (await client.of(PODS).list("default")).items if item.spec.nodeName == node]
    requested = sum(dict(pod_requests(item).amounts).get("cpu", 0) for item in items)
    if requested <= NODE_CPU:
        raise CheckFailed(f"the pods of {node} request {requested / 1000:g} CPUs, which fit: pod/rival-2 is not there")
    return (
        f"pod/late-2 was bound to {node} without a fence: its pods request {requested / 1000:g} CPUs, "
        f"and the node has {NODE_CPU / 1000:g}"
    )


CHECKS = {"freeze": check_freeze, "resume": check_resume, "fence": check_fence, "no-fence": check_no_fence}
