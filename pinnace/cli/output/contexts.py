"""The client's configuration as people see it: a table of its contexts, and the file without what is secret."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.client.config import entries
from pinnace.client.contexts import CURRENT

HEADERS = ("CURRENT", "NAME", "CLUSTER", "SERVERS", "USER", "NAMESPACE")
_OMITTED, _REDACTED = "DATA+OMITTED", "REDACTED"
"""kubectl's words."""
_SECRET = ("token", "password", "secret")
_FILE = ("file", "path")
"""Ends of names: of what says where a secret is, and is none."""


def rows(document: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
    """One for each context, in alphabetical order."""
    servers = {each.get("name"): _text(each, "cluster", "server") for each in entries(document, "cluster")}
    current = document.get(CURRENT)
    found = []
    for each in entries(document, "context"):
        name, cluster = str(each.get("name")), _text(each, "context", "cluster")
        user, namespace = _text(each, "context", "user"), _text(each, "context", "namespace")
        found.append(("*" if name == current else "", name, cluster, servers.get(cluster, ""), user, namespace))
    return sorted(found, key=lambda row: row[1])


def redacted(value: Any) -> Any:
    """The same without keys, tokens and passwords, wherever they are."""
    if isinstance(value, list):
        return [redacted(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"name", "value"}:  # an environment variable of a program that says who one is
        return {**value, "value": _REDACTED}
    return {key: _hidden(str(key), each) for key, each in value.items()}


def _hidden(key: str, value: Any) -> Any:
    name = key.lower()
    if isinstance(value, Mapping | list) or not value:
        return redacted(value)
    if name.endswith("-data"):
        return _OMITTED
    return _REDACTED if any(word in name for word in _SECRET) and not name.endswith(_FILE) else value


def _text(entry: Mapping[str, Any], kind: str, key: str) -> str:
    value = entry.get(kind)
    return str(value.get(key) or "") if isinstance(value, Mapping) else ""
