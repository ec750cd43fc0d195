"""The checks of lab 2: a pod by its revisions."""

from pinnace.api.keys_pb2 import KeyVersion
from pinnace.api.resources import PODS
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.verification.labs.checks import CheckFailed, get_pod, list_events

WRITES = 3
"""Writes of a pod until it runs: its creation, the bind, and the status of its kubelet."""


async def _get_pod_key(client: Client, name: str) -> KeyVersion:
    """Return the key of a pod, without its value. Raises CheckFailed if there is none."""
    key = f"{PODS.prefix}default/{name}"
    if (item := await client.keys.get(key, keys_only=True)) is not None:
        return item
    raise CheckFailed(f"pod/{name} does not exist")


async def check_writes(client: Client) -> str:
    result = await get_pod(client, "first")
    if result.status.phase != "Running":
        raise CheckFailed(f"pod/first is {result.status.phase or 'Pending'}, not Running")
    item = await _get_pod_key(client, "first")
    if item.version < WRITES:
        raise CheckFailed(f"pod/first was written {item.version} times, not {WRITES} times")
    return f"pod/first was created at revision {item.create_revision} and is Running"


async def check_revision(client: Client) -> str:
    result = await get_pod(client, "first")
    if result.metadata.labels.get("lab") != "2":
        raise CheckFailed("pod/first has no label lab=2")
    item = await _get_pod_key(client, "first")
    other = await _get_pod_key(client, "other")
    if item.mod_revision < other.create_revision:
        raise CheckFailed("pod/first was labeled before pod/other was created")
    return f"pod/first was written again at revision {item.mod_revision}, after pod/other"


async def check_conflict(client: Client) -> str:
    color = (await get_pod(client, "first")).metadata.labels.get("color", "")
    if color != "blue":
        raise CheckFailed(f"pod/first has the color {color or '<none>'}, not blue")
    return "pod/first is blue: the write with a stale resourceVersion was rejected"


async def check_resume(client: Client) -> str:
    if not await list_events(client, "Scheduled", name="gone"):
        raise CheckFailed("pod/gone was never scheduled")
    try:
        await client.pods.get("gone", "default")
    except NotFound:
        return "pod/gone was scheduled, and is deleted"
    raise CheckFailed("pod/gone still exists")


CHECKS = {
    "writes": check_writes,
    "revision": check_revision,
    "conflict": check_conflict,
    "resume": check_resume,
}
