"""Objects as people write them: without status, the server's own metadata, and what `apply` notes for itself. Pure."""

from collections.abc import Mapping
from typing import Any

from pinnace.api.merge import LAST_APPLIED

_SERVERS_OWN = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


def written(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of the JSON form of an object."""
    metadata = {key: value for key, value in data["metadata"].items() if key not in _SERVERS_OWN}
    if annotations := {key: value for key, value in metadata.pop("annotations", {}).items() if key != LAST_APPLIED}:
        metadata["annotations"] = annotations
    return {key: metadata if key == "metadata" else value for key, value in data.items() if key != "status"}


def completed(data: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse: what somebody wrote, with what is left out as it is in `live`."""
    own = {key: value for key, value in live["metadata"].items() if key in _SERVERS_OWN}
    metadata = {**written(data)["metadata"], **own}
    if last := live["metadata"].get("annotations", {}).get(LAST_APPLIED):
        metadata["annotations"] = {**metadata.get("annotations", {}), LAST_APPLIED: last}
    status = {"status": live["status"]} if "status" in live else {}
    return {**data, "metadata": metadata, **status}
