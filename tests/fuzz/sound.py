"""Requests that are as they should be: one for every method of the API."""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from pinnace.api import authorization_pb2, calls_pb2, elections_pb2, keys_pb2, metrics_pb2, tables_pb2, tokens_pb2, version_pb2
from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.apiregistration_v1_pb2 import APIService
from pinnace.api.authentication_v1_pb2 import TokenRequest, TokenRequestSpec
from pinnace.api.authorization_pb2 import ResourceAttributes
from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.calls_pb2 import Call, CallBatch
from pinnace.api.codec import from_dict
from pinnace.api.conversion import SERVED_VERSIONS
from pinnace.api.core_v1_pb2 import Binding
from pinnace.api.elections_pb2 import CampaignRequest
from pinnace.api.manifest import load
from pinnace.api.networking_v1_pb2 import IPAddress
from pinnace.api.nodes_pb2 import HeartbeatRequest
from pinnace.api.pods_pb2 import Fence
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.resources import ALL, EVENTS_V1, HORIZONTAL_POD_AUTOSCALERS_V1, Resource
from pinnace.api.verbs_pb2 import DeleteRequest, GetRequest
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.services.discovery import HEALTH, REFLECTION
from tests.fuzz.values import NAMES

_FILE = Path(__file__).parent / "sound.yaml"
_CONDITIONAL = {strategy.resource.service for strategy in STRATEGIES.values() if not strategy.allow_unconditional_update}
"""Services whose updates must say which version they change."""


_AUTOSCALER = {
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 70,
    },
}
_EVENT = {
    "metadata": {"name": "web-0.1", "namespace": "default"}, "eventTime": "2026-01-31T12:00:00.000000Z", "type": "Normal",
    "reportingController": "example.com/scheduler", "reportingInstance": "edge-0", "action": "Binding", "reason": "Scheduled",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "web-0"}, "note": "it went well",
}  # fmt: skip


def methods() -> Mapping[str, MethodDescriptor]:
    """All that the API has, by path."""
    special = (
        elections_pb2.DESCRIPTOR.services_by_name["Elections"],
        authorization_pb2.DESCRIPTOR.services_by_name["Authorization"],
        calls_pb2.DESCRIPTOR.services_by_name["Calls"],
        keys_pb2.DESCRIPTOR.services_by_name["Keys"],
        tables_pb2.DESCRIPTOR.services_by_name["Tables"],
        *metrics_pb2.DESCRIPTOR.services_by_name.values(),
        tokens_pb2.DESCRIPTOR.services_by_name["Tokens"],
        version_pb2.DESCRIPTOR.services_by_name["Version"],
    )
    services: tuple[ServiceDescriptor, ...] = (
        *(item.messages.DESCRIPTOR.services_by_name[item.service.rpartition(".")[2]] for item in (*ALL, *SERVED_VERSIONS)),
        *special,
    )
    result = [*(method for service in services for method in service.methods), *HEALTH, *REFLECTION]
    return {f"/{method.containing_service.full_name}/{method.name}": method for method in result}


@cache
def objects() -> Mapping[str, tuple[Resource[Any], Any]]:
    """One of each kind, by the full name of its message. Not to be changed."""
    manifests = load(_FILE.read_text(), _FILE.name)
    return {manifest.resource.message.DESCRIPTOR.full_name: (manifest.resource, manifest.obj) for manifest in manifests}


@cache
def _samples() -> Mapping[str, Message]:
    binding = Binding()
    binding.metadata.namespace, binding.metadata.name = "default", "a"
    binding.target.kind, binding.target.name = "Node", "edge-0"
    eviction = Eviction()
    eviction.metadata.namespace, eviction.metadata.name = "default", "a"
    scale = Scale()
    scale.metadata.namespace, scale.metadata.name, scale.spec.replicas = "default", "a", 1
    samples: list[Message] = [
        scale,
        binding,
        eviction,
        Fence(election="scheduler", token=1),
        TokenRequest(spec=TokenRequestSpec(audiences=["vault"], expirationSeconds=600)),
        DeleteRequest(namespace="default", name="a"),
        ResourceAttributes(verb="get", resource="pods", namespace="default"),
        from_dict(EVENTS_V1, _EVENT),
        from_dict(HORIZONTAL_POD_AUTOSCALERS_V1, _AUTOSCALER),
    ]
    return {sample.DESCRIPTOR.full_name: sample for sample in samples}


def request(method: MethodDescriptor, rng: random.Random) -> Message:
    """One that the method would take: about an object of the kind, under one of a few names."""
    made: Any = _new(method.input_type)
    for field in method.input_type.fields:
        sample = _sample(field.message_type)
        if sample is None:
            if field.name in _VALUES:
                setattr(made, field.name, rng.choice(_VALUES[field.name]))
        elif field.is_repeated:
            for _ in range(rng.choice((1, 1, 2, 5))):
                _rename(getattr(made, field.name).add(), sample, rng)
        else:
            _rename(getattr(made, field.name), sample, rng)
    if method.name.startswith("Update") and method.containing_service.full_name in _CONDITIONAL:
        made.object.metadata.resourceVersion = "1"
    return made


def conversation(method: MethodDescriptor, rng: random.Random) -> list[Message]:
    """What a peer of a stream in both directions says: it opens, beats, and ends."""
    name = rng.choice(NAMES)
    if method.name == "Campaign":
        beats: list[Message] = [
            CampaignRequest(heartbeat=CampaignRequest.Heartbeat(sequence=number)) for number in range(1, rng.randrange(1, 4))
        ]
        opening = CampaignRequest(
            open=CampaignRequest.Open(election=name, holder=f"edge-{rng.randrange(3)}", secret=rng.randbytes(16))
        )
        return [opening, *beats, CampaignRequest(resign=CampaignRequest.Resign())]
    if method.name == "ServerReflectionInfo":
        return [ServerReflectionRequest(list_services=""), ServerReflectionRequest(file_containing_symbol="pinnace.v1.Pods")]
    if method.name == "Exchange":
        path, get = "/pinnace.v1.Pods/Get", GetRequest(namespace="default", name=name).SerializeToString()
        half = len(get) // 2
        return [
            CallBatch(calls=[Call(id=1, method=path, timeout_ms=1000, request=get)]),
            CallBatch(calls=[Call(id=2, method=path, timeout_ms=1000, request=get[:half], more=True)]),
            CallBatch(calls=[Call(id=2, request=get[half:])], cancelled=[1]),
        ]
    beats = [HeartbeatRequest(beat=HeartbeatRequest.Beat(sequence=number)) for number in range(1, rng.randrange(1, 4))]
    first = HeartbeatRequest(open=HeartbeatRequest.Open(holder="edge", nodes=["edge-0", "edge-1"]))
    more = HeartbeatRequest(add=HeartbeatRequest.Add(nodes=["edge-2"]))
    fewer = HeartbeatRequest(release=HeartbeatRequest.Release(nodes=["edge-0"]))
    return [first, *beats, more, fewer, HeartbeatRequest(close=HeartbeatRequest.Close())]


_VALUES: Mapping[str, Sequence[Any]] = {
    "name": NAMES,
    "namespace": ("default", "team"),
    "token": ("a-token",),
    "user": ("eve",),
    "patch": (b'{"metadata":{"labels":{"a":"b"}}}',),
    "type": (1, 2),
    "resource": tuple(resource.plural for resource in ALL),
}


_WITH_FIXED_NAMES = {item.DESCRIPTOR.full_name for item in (IPAddress, CustomResourceDefinition, APIService)}
"""Messages whose name follows from other fields."""


def _sample(message: Descriptor | None) -> Any:
    if message is None:
        return None
    obj = objects().get(message.full_name)
    return obj[1] if obj is not None else _samples().get(message.full_name)


def _rename(target: Any, sample: Any, rng: random.Random) -> None:
    target.CopyFrom(sample)
    if rng.random() < 0.5 and target.DESCRIPTOR.full_name not in _WITH_FIXED_NAMES:
        place = target.metadata if "metadata" in target.DESCRIPTOR.fields_by_name else target
        if "name" in place.DESCRIPTOR.fields_by_name:
            place.name = rng.choice(NAMES)


def _new(message: Descriptor) -> Message:
    made: Message = message_factory.GetMessageClass(message)()
    return made
