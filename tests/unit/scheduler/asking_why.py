"""Questions to `pinnace why`, from the objects of a cluster to what it prints, without a process between."""

import json
from collections.abc import Sequence
from textwrap import dedent
from typing import Any

from pinnace.api.records import Explanation, from_json, to_json
from pinnace.api.resources import ALL, NODES, PODS, Object
from pinnace.cli.verbs.why import format_explanation
from pinnace.scheduler.config import Configuration, parse_configuration
from pinnace.scheduler.explaining import SelectedConfiguration, explain_with_stores
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod

NO_PREEMPTION = parse_configuration(
    dedent("""\
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - plugins: {postFilter: {disabled: [{name: "*"}]}}
    """)
)
THREE = [make_node(f"n{i}") for i in range(3)]
BUSY = [make_pod(f"b{i}").req(cpu="3500m" if i else "3200m", memory="1Gi").node(f"n{i}") for i in range(3)]


def explained(
    pod: PodBuilder,
    nodes: Sequence[NodeBuilder],
    placed: Sequence[PodBuilder] = (),
    *,
    node: str = "",
    configuration: Configuration = NO_PREEMPTION,
    followed: SelectedConfiguration | None = None,
    objects: Sequence[Object] = (),
) -> Explanation:
    """As it comes out of the other process."""
    stores: dict[Any, dict[str, Any]] = {resource: {} for resource in ALL}
    stores[NODES] = {item.metadata.name: item for item in (builder.build() for builder in nodes)}
    for obj in objects:
        resource = next(resource for resource in ALL if isinstance(obj, resource.message))
        obj.metadata.namespace = "default" if resource.namespaced else ""
        stores[resource]["default/" * resource.namespaced + obj.metadata.name] = obj
    stores[PODS] = {f"default/{item.metadata.name}": item for item in (builder.build() for builder in placed)}
    result = explain_with_stores(pod.build(), stores, followed or SelectedConfiguration(configuration), node)
    return from_json(Explanation, json.loads(json.dumps(to_json(result))))


def why(pod: PodBuilder, nodes: Sequence[NodeBuilder], placed: Sequence[PodBuilder] = (), **more: Any) -> str:
    """Without what is said about events."""
    *text, empty, events = format_explanation(explained(pod, nodes, placed, **more), (), 0.0)
    assert (empty, events) == ("", "Events of its scheduler:  <none>")
    return "".join(f"{line}\n" for line in text)


def remedies(*question: Any, **more: Any) -> list[str]:
    return [f"{remedy.text} -> {' '.join(remedy.nodes)}" for remedy in explained(*question, **more).remedies]


def details(*question: Any, node: str = "n0") -> list[str]:
    asked = explained(*question, node=node).asked
    assert asked is not None
    return [f"{objection.plugin}: {detail}" for objection in asked.objections for detail in objection.details]
