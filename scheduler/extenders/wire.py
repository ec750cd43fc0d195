"""The JSON of Kubernetes' extenders: the fields have the names of Go's, and are read whatever their case.

A bind has one field more than Kubernetes': `Fence`, {Election, Token}.
Source: k8s.io/kube-scheduler/extender/v1
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence
from scheduler.extenders.interface import Demanded, Filtered, Sacrifice

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Malformed(ValueError):
    """The answer is not of the form that it should have."""


class Encoder:
    """Remembers what nodes look like in JSON, as long as they are the same: it takes far longer than all the rest."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[Node, str]] = {}

    def args(self, pod: Pod, nodes: Sequence[Node], by_name: bool) -> bytes:
        """ExtenderArgs."""
        names = json.dumps([node.metadata.name for node in nodes]) if by_name else "null"
        items = "null" if by_name else f'{{"metadata":{{}},"items":[{",".join(map(self._node, nodes))}]}}'
        self._forget(len(nodes))
        return f'{{"Pod":{json.dumps(to_dict(pod))},"Nodes":{items},"NodeNames":{names}}}'.encode()

    def _node(self, node: Node) -> str:
        name = node.metadata.name
        known = self._nodes.get(name)
        if known is None or known[0] is not node:
            known = self._nodes[name] = node, json.dumps(to_dict(node))
        return known[1]

    def _forget(self, nodes: int) -> None:
        """Nodes that are gone are forgotten with all others, before there are many of them."""
        if len(self._nodes) > 2 * nodes + 1000:
            self._nodes.clear()


def preemption_args(pod: Pod, victims: Mapping[str, Sacrifice], by_uid: bool) -> bytes:
    """ExtenderPreemptionArgs."""

    def shown(pods: Sequence[Pod]) -> list[dict[str, Any]]:
        return [{"UID": each.metadata.uid} if by_uid else to_dict(each) for each in pods]

    by_node = {node: {"Pods": shown(each.pods), "NumPDBViolations": each.violations} for node, each in victims.items()}
    full, meta = (None, by_node) if by_uid else (by_node, None)
    return json.dumps({"Pod": to_dict(pod), "NodeNameToVictims": full, "NodeNameToMetaVictims": meta}).encode()


def binding_args(binding: Binding, fence: Fence) -> bytes:
    """ExtenderBindingArgs, and the fence, whose secret is in Base64 as Go encodes []byte."""
    metadata = binding.metadata
    return json.dumps(
        {
            "PodName": metadata.name,
            "PodNamespace": metadata.namespace,
            "PodUID": metadata.uid,
            "Node": binding.target.name,
            "Fence": {
                "Election": fence.election,
                "Token": fence.token,
                "Secret": base64.b64encode(fence.secret).decode(),
            },
        }
    ).encode()


def filtered(answer: bytes, by_name: bool) -> tuple[Filtered, str]:
    """An ExtenderFilterResult, and its error. `by_name`: which of the two forms counts if the answer has both. If it has
    neither, no node is left, as in Kubernetes. Raises Malformed."""
    result = _fields(_parsed(answer), "the answer")
    names, nodes = result.get("nodenames"), result.get("nodes")
    if nodes is not None and not (by_name and names is not None):
        names = [_name(item) for item in _items(_fields(nodes, "Nodes").get("items"), "Nodes.items")]
    left = [_text(name, "NodeNames[]") for name in _items(names, "NodeNames")]
    failed, unresolvable = _texts(result, "FailedNodes"), _texts(result, "FailedAndUnresolvableNodes")
    return Filtered(left, failed, unresolvable), _error(result)


def priorities(answer: bytes) -> list[tuple[str, int]]:
    """A HostPriorityList. Raises Malformed."""
    found = []
    for item in _items(_parsed(answer), "the answer"):
        entry = _fields(item, "[]")
        found.append((_text(entry.get("host"), "Host"), _number(entry.get("score", 0), "Score")))
    return found


def demanded(answer: bytes) -> dict[str, Demanded]:
    """An ExtenderPreemptionResult. Raises Malformed."""
    result = _fields(_parsed(answer), "the answer")
    found = {}
    for node, raw in _mapping(result.get("nodenametometavictims"), "NodeNameToMetaVictims").items():
        victims = _fields(raw or {}, f"NodeNameToMetaVictims[{node}]")
        pods = [_fields(pod, "Pods[]") for pod in _items(victims.get("pods"), "Pods")]
        uids = [_text(pod.get("uid"), "UID") for pod in pods]
        found[node] = Demanded(uids, _number(victims.get("numpdbviolations", 0), "NumPDBViolations"))
    return found


def binding_error(answer: bytes) -> str:
    """Of an ExtenderBindingResult. Raises Malformed."""
    return _error(_fields(_parsed(answer), "the answer"))


def _parsed(answer: bytes) -> Any:
    """What is no Unicode is replaced, as Go does: it could not be sent on, in an event for example."""
    try:
        text = answer.decode(errors="replace")
        parsed = json.loads(text)
        if _SURROGATE.search(text):
            parsed = json.loads(json.dumps(parsed, ensure_ascii=False).encode(errors="replace"))
        return parsed
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the answer is not JSON: {error}") from None


def _name(node: Any) -> Any:
    return _fields(_fields(node, "Nodes.items[]").get("metadata"), "Nodes.items[].metadata").get("name")


def _error(result: Mapping[str, Any]) -> str:
    return _text(result.get("error") or "", "Error")


def _texts(result: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: _text(value, f"{name}[{key}]") for key, value in _mapping(result.get(name.lower()), name).items()}


def _fields(raw: Any, where: str) -> dict[str, Any]:
    """By name in lower case."""
    return {name.lower(): value for name, value in _mapping(raw, where).items()}


def _mapping(raw: Any, where: str) -> Mapping[str, Any]:
    """null is an empty one."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise Malformed(f"{where}: expected an object")
    return raw


def _items(raw: Any, where: str) -> list[Any]:
    """null is an empty one."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise Malformed(f"{where}: expected a list")
    return raw


def _text(raw: Any, where: str) -> str:
    if not isinstance(raw, str):
        raise Malformed(f"{where}: expected text")
    return raw


def _number(raw: Any, where: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise Malformed(f"{where}: expected a whole number")
    return raw
