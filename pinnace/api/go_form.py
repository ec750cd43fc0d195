"""The fields that Kubernetes' Go types write although they are empty. Clients read them unchecked, and they have owners."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from pinnace.api.codec import fields_of
from pinnace.api.resources import ALL, HORIZONTAL_POD_AUTOSCALERS_V1

SHOWN_WHEN_EMPTY: dict[str, tuple[str, ...]] = {
    **{
        resource.message.DESCRIPTOR.full_name: ("status",)
        for resource in (*ALL, HORIZONTAL_POD_AUTOSCALERS_V1)
        if "status" in resource.message.DESCRIPTOR.fields_by_name
    },
    "pinnace.apiextensions.v1.CustomResourceDefinitionStatus": ("acceptedNames",),
    "pinnace.batch.v1.JobTemplateSpec": ("metadata",),
    "pinnace.core.v1.Container": ("resources",),
    "pinnace.core.v1.ContainerStatus": ("state", "lastState"),
    "pinnace.core.v1.EphemeralContainerCommon": ("resources",),
    "pinnace.core.v1.Event": ("involvedObject", "source"),
    "pinnace.events.v1.Event": ("regarding", "deprecatedSource"),
}
"""Messages that Kubernetes serializes as {} if they are empty, because clients read their fields without a check."""
SHOWN_AS_NULL: dict[str, tuple[str, ...]] = {
    "pinnace.apiextensions.v1.CustomResourceDefinitionCondition": ("lastTransitionTime",),
    "pinnace.apiextensions.v1.CustomResourceDefinitionStatus": ("conditions", "storedVersions"),
    "pinnace.apiregistration.v1.APIServiceCondition": ("lastTransitionTime",),
    "pinnace.apps.v1.DaemonSetCondition": ("lastTransitionTime",),
    "pinnace.apps.v1.DeploymentCondition": ("lastUpdateTime", "lastTransitionTime"),
    "pinnace.apps.v1.ReplicaSetCondition": ("lastTransitionTime",),
    "pinnace.autoscaling.v2.HorizontalPodAutoscalerCondition": ("lastTransitionTime",),
    "pinnace.autoscaling.v2.HorizontalPodAutoscalerStatus": ("currentMetrics",),
    "pinnace.apps.v1.StatefulSetCondition": ("lastTransitionTime",),
    "pinnace.batch.v1.JobCondition": ("lastProbeTime", "lastTransitionTime"),
    "pinnace.core.v1.ContainerStateRunning": ("startedAt",),
    "pinnace.core.v1.ContainerStateTerminated": ("startedAt", "finishedAt"),
    "pinnace.core.v1.Event": ("firstTimestamp", "lastTimestamp", "eventTime"),
    "pinnace.core.v1.EventSeries": ("lastObservedTime",),
    "pinnace.core.v1.NamespaceCondition": ("lastTransitionTime",),
    "pinnace.core.v1.NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"),
    "pinnace.core.v1.PersistentVolumeClaimCondition": ("lastProbeTime", "lastTransitionTime"),
    "pinnace.core.v1.PodCondition": ("lastProbeTime", "lastTransitionTime"),
    "pinnace.events.v1.Event": ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
    "pinnace.events.v1.EventSeries": ("lastObservedTime",),
    "pinnace.meta.v1.Condition": ("lastTransitionTime",),
}
"""Times and lists that Kubernetes serializes as null if they are absent: Go's `omitempty` does not omit a struct."""


def complete_form(message: Message, form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of a message with the fields that Kubernetes writes as null or {}. `form` is not changed."""
    described: Any = message
    return _complete_message(described.DESCRIPTOR, form)


def _complete_message(descriptor: Descriptor, form: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(form)
    for name, message in _incomplete_parts(descriptor).items():
        if name in result:
            result[name] = _completed_value(message, result[name])
    for name in SHOWN_AS_NULL.get(descriptor.full_name, ()):
        result.setdefault(name)
    for name in SHOWN_WHEN_EMPTY.get(descriptor.full_name, ()):
        result.setdefault(name, {})
    return result


def _completed_value(message: Descriptor, value: Any) -> Any:
    if isinstance(value, list):
        return [_completed_value(message, item) for item in value]
    return _complete_message(message, value) if isinstance(value, dict) else value


@cache
def _incomplete_parts(descriptor: Descriptor) -> Mapping[str, Descriptor]:
    """Return the types of the fields whose values may lack something, by JSON name. Values of maps are never among them."""
    parts = {}
    for name, field in fields_of(descriptor).items():
        message = field.descriptor.message_type
        if message is not None and field.value is None and _needs_completion(message, frozenset()):
            parts[name] = message
    return parts


def _needs_completion(descriptor: Descriptor, above: frozenset[str]) -> bool:
    """Return whether a message, or one in it, has fields that are written although they are empty. `above`: the messages that
    contain it."""
    name = descriptor.full_name
    if name in above:
        return False
    if name in SHOWN_AS_NULL or name in SHOWN_WHEN_EMPTY:
        return True
    fields = fields_of(descriptor).values()
    messages = [field.descriptor.message_type for field in fields if field.value is None]
    return any(_needs_completion(message, above | {name}) for message in messages if message is not None)
