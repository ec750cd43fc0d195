"""Objects that were stored before there was a rule which they break can be changed, reported on and let go all the same."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod, ResourceQuota, Service
from pinnace.api.events_pb2 import CreateEventBatchRequest
from pinnace.api.pods_pb2 import BindRequest
from pinnace.api.resourcequotas_pb2 import ResourceQuotaWatchResponse
from pinnace.api.resources import (
    ALL,
    CRON_JOBS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    IP_ADDRESSES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    SERVICE_CIDRS,
    SERVICES,
    Resource,
)
from pinnace.api.status import Code, Violation
from pinnace.api.verbs_pb2 import BatchResponse, DeleteRequest, GetRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategy import MAX_PARTS, StatusStrategy, added_violations
from pinnace.apiserver.storage.interface import Committed, Write
from tests.builders import make_pod
from tests.fuzz.sound import objects
from tests.nesting import nested
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller
from tests.workloads import make_deployment

pytestmark = pytest.mark.slow

PATIENCE = 10.0
Change = Callable[[Any], object]
MINE = "example.com/mine"


def template(obj: Any) -> None:
    obj.spec.template.spec.containers[0].env.add(name="SPOILT", value="x\0y")


def scaled(obj: Any) -> None:
    obj.spec.replicas += 1


BODIES: Mapping[str, tuple[Change, Change]] = {
    "pods": (
        lambda obj: obj.spec.containers[0].env.add(name="SPOILT", value="x\0y"),
        lambda obj: setattr(obj.spec.containers[0], "image", "app:2"),
    ),
    "nodes": (
        lambda obj: obj.spec.taints.add(key="a", effect="Spoilt"),
        lambda obj: obj.spec.taints.add(key="b", effect="NoSchedule"),
    ),
    "events": (lambda obj: setattr(obj.involvedObject, "namespace", "other"), lambda obj: setattr(obj, "message", "more")),
    "priorityclasses": (
        lambda obj: setattr(obj, "preemptionPolicy", "Spoilt"),
        lambda obj: setattr(obj, "description", "more"),
    ),
    "leases": (lambda obj: setattr(obj.spec, "leaseTransitions", -1), lambda obj: setattr(obj.spec, "holderIdentity", "b")),
    "persistentvolumes": (
        lambda obj: setattr(obj.spec, "persistentVolumeReclaimPolicy", "Spoilt"),
        lambda obj: setattr(obj.spec.capacity["storage"], "string", "20Gi"),
    ),
    "persistentvolumeclaims": (
        lambda obj: setattr(obj.spec.resources.requests["cpu"], "string", "much"),
        lambda obj: setattr(obj.spec, "volumeName", "disk"),
    ),
    "storageclasses": (
        lambda obj: obj.allowedTopologies.add().matchLabelExpressions.add(key="zone"),
        lambda obj: setattr(obj, "allowVolumeExpansion", True),
    ),
    "csinodes": (
        lambda obj: setattr(obj.spec.drivers[0].allocatable, "count", -1),
        lambda obj: obj.spec.drivers.add(name="other.example.com", nodeID="n"),
    ),
    "services": (
        lambda obj: obj.spec.externalIPs.append("spoilt"),
        lambda obj: obj.spec.selector.update(app="other"),
    ),
    "poddisruptionbudgets": (
        lambda obj: setattr(obj.spec, "unhealthyPodEvictionPolicy", "Spoilt"),
        lambda obj: setattr(obj.spec.minAvailable, "strVal", "60%"),
    ),
    "resourcequotas": (
        lambda obj: setattr(obj.spec.hard["limits.cpu"], "string", "-1"),
        lambda obj: setattr(obj.spec.hard["pods"], "string", "5"),
    ),
    "limitranges": (
        lambda obj: obj.spec.limits.add(type="Spoilt"),
        lambda obj: setattr(obj.spec.limits[0].max["cpu"], "string", "5"),
    ),
    "roles": (lambda obj: obj.rules.add(), lambda obj: obj.rules[0].verbs.append("watch")),
    "clusterroles": (lambda obj: obj.rules.add(), lambda obj: obj.rules[0].verbs.append("watch")),
    "rolebindings": (
        lambda obj: obj.subjects.add(kind="Spoilt", name="a"),
        lambda obj: obj.subjects.add(kind="User", name="adam"),
    ),
    "clusterrolebindings": (
        lambda obj: obj.subjects.add(kind="Spoilt", name="a"),
        lambda obj: obj.subjects.add(kind="User", name="adam"),
    ),
    "replicasets": (template, scaled),
    "deployments": (template, scaled),
    "jobs": (template, lambda obj: setattr(obj.spec, "suspend", True)),
    "statefulsets": (template, scaled),
    "cronjobs": (
        lambda obj: setattr(obj.spec, "concurrencyPolicy", "Spoilt"),
        lambda obj: setattr(obj.spec, "schedule", "@daily"),
    ),
    "daemonsets": (template, lambda obj: setattr(obj.spec, "minReadySeconds", 7)),
    "configmaps": (lambda obj: obj.data.update({"a/b": "spoilt"}), lambda obj: obj.data.update(other="text")),
    "secrets": (lambda obj: obj.data.update({"a/b": b"spoilt"}), lambda obj: obj.data.update(other=b"bytes")),
    "controllerrevisions": (
        lambda obj: setattr(obj, "revision", -1),
        lambda obj: setattr(obj, "revision", 5),
    ),
    "endpointslices": (
        lambda obj: obj.endpoints[0].addresses.append("spoilt"),
        lambda obj: setattr(obj.endpoints[0].conditions, "ready", False),
    ),
    **{
        plural: (
            lambda obj: setattr(obj.webhooks[0], "timeoutSeconds", 31),
            lambda obj: setattr(obj.webhooks[0], "failurePolicy", "Fail"),
        )
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    },
    **{
        plural: (
            lambda obj: obj.spec.variables.add(name="1", expression="1"),
            lambda obj: obj.spec.variables.add(name="more", expression="1"),
        )
        for plural in ("mutatingadmissionpolicies", "validatingadmissionpolicies")
    },
    **{
        plural: (
            lambda obj: setattr(obj.spec.matchResources, "matchPolicy", "Spoilt"),
            lambda obj: setattr(obj.spec.matchResources, "matchPolicy", "Exact"),
        )
        for plural in ("mutatingadmissionpolicybindings", "validatingadmissionpolicybindings")
    },
    "ingresses": (
        lambda obj: obj.spec.rules.add(host="Spoilt"),
        lambda obj: obj.spec.rules.add(host="b.example"),
    ),
    "ingressclasses": (
        lambda obj: setattr(obj.spec.parameters, "scope", "Spoilt"),
        lambda obj: setattr(obj.spec.parameters, "name", "other"),
    ),
    "runtimeclasses": (
        lambda obj: obj.scheduling.tolerations.add(key="a b"),
        lambda obj: obj.scheduling.nodeSelector.update(zone="a"),
    ),
    "apiservices": (
        lambda obj: setattr(obj.spec, "versionPriority", 0),
        lambda obj: setattr(obj.spec, "groupPriorityMinimum", 7),
    ),
    "endpoints": (
        lambda obj: obj.subsets.add(),
        lambda obj: obj.subsets.add().addresses.add(ip="10.0.0.9"),
    ),
    "horizontalpodautoscalers": (
        lambda obj: obj.spec.metrics.add(type="Spoilt"),
        lambda obj: setattr(obj.spec, "maxReplicas", 11),
    ),
    "networkpolicies": (
        lambda obj: obj.spec.ingress[0].ports.add(protocol="SPOILT"),
        lambda obj: obj.spec.ingress.add(),
    ),
}
"""By plural: what spoils what an update judges beside the metadata, and what is changed there afterwards."""
WITHOUT = {
    NAMESPACES.plural, SERVICE_ACCOUNTS.plural, IP_ADDRESSES.plural, SERVICE_CIDRS.plural, CUSTOM_RESOURCE_DEFINITIONS.plural,
}  # fmt: skip
"""Where there is no such thing. The tests of pinnace.apiextensions are about definitions."""
STATUSES: Mapping[str, tuple[Change, Change]] = {
    "pods": (lambda obj: setattr(obj.status, "podIP", "spoilt"), lambda obj: setattr(obj.status, "message", "more")),
    "nodes": (
        lambda obj: setattr(obj.status.capacity["cpu"], "string", "-1"),
        lambda obj: setattr(obj.status.conditions[0], "status", "Unknown"),
    ),
    "namespaces": (
        lambda obj: setattr(obj.status, "phase", "Spoilt"),
        lambda obj: obj.status.conditions.add(type="Ready", status="True"),
    ),
    "services": (
        lambda obj: (setattr(obj.spec, "type", "LoadBalancer"), obj.status.loadBalancer.ingress.add(ip="spoilt")),
        lambda obj: obj.status.conditions.add(type="Ready", status="True"),
    ),
    "ingresses": (
        lambda obj: obj.status.loadBalancer.ingress.add(ip="spoilt"),
        lambda obj: obj.status.loadBalancer.ingress.add(ip="192.0.2.2"),
    ),
    "persistentvolumes": (
        lambda obj: setattr(obj.status, "phase", "Spoilt"),
        lambda obj: setattr(obj.status, "reason", "more"),
    ),
    "persistentvolumeclaims": (
        lambda obj: setattr(obj.status.capacity["storage"], "string", "-1"),
        lambda obj: setattr(obj.status, "phase", "Bound"),
    ),
    "poddisruptionbudgets": (
        lambda obj: setattr(obj.status, "currentHealthy", -1),
        lambda obj: setattr(obj.status, "desiredHealthy", 1),
    ),
    "resourcequotas": (
        lambda obj: setattr(obj.status.used["pods"], "string", "-1"),
        lambda obj: setattr(obj.status.used["requests.cpu"], "string", "1"),
    ),
    "replicasets": (
        lambda obj: setattr(obj.status, "readyReplicas", -1),
        lambda obj: setattr(obj.status, "observedGeneration", 5),
    ),
    "deployments": (
        lambda obj: setattr(obj.status, "readyReplicas", -1),
        lambda obj: setattr(obj.status, "observedGeneration", 5),
    ),
    "statefulsets": (
        lambda obj: setattr(obj.status, "readyReplicas", -1),
        lambda obj: setattr(obj.status, "observedGeneration", 5),
    ),
    "servicecidrs": (
        lambda obj: obj.status.conditions.add(type="Ready", status="Spoilt"),
        lambda obj: obj.status.conditions.add(type="Other", status="True"),
    ),
    "validatingadmissionpolicies": (
        lambda obj: obj.status.conditions.add(type="Ready", status="Spoilt"),
        lambda obj: setattr(obj.status, "observedGeneration", 5),
    ),
    "apiservices": (
        lambda obj: obj.status.conditions.add(type="Ready", status="Spoilt"),
        lambda obj: obj.status.conditions.add(type="Other", status="True"),
    ),
    "horizontalpodautoscalers": (
        lambda obj: setattr(obj.status, "currentReplicas", -1),
        lambda obj: setattr(obj.status, "desiredReplicas", 4),
    ),
    "jobs": (lambda obj: setattr(obj.status, "active", -1), lambda obj: setattr(obj.status, "terminating", 2)),
    "daemonsets": (lambda obj: setattr(obj.status, "numberReady", -1), lambda obj: setattr(obj.status, "numberReady", 2)),
}
"""The same of the status."""

every_resource = pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)


def sound(resource: Resource[Any]) -> Any:
    """As it is stored."""
    sample = objects()[resource.message.DESCRIPTOR.full_name][1]
    obj = copied(resource, sample)
    obj.metadata.uid, obj.metadata.generation = "u", 1
    STRATEGIES[resource.plural].prepare_create(obj)
    if resource.plural in STATUSES:
        obj.status.CopyFrom(sample.status)
    return obj


def copied(resource: Resource[Any], obj: Any) -> Any:
    copy = resource.message()
    copy.CopyFrom(obj)
    return copy


def spoilt(resource: Resource[Any]) -> Any:
    """In all ways at once."""
    obj = sound(resource)
    obj.metadata.labels["a b"] = "c d"
    obj.metadata.finalizers.extend(["spoilt", MINE])
    for number in range(MAX_PARTS + 1):
        obj.metadata.annotations[f"k{number}"] = ""
    for table in (BODIES, STATUSES):
        if resource.plural in table:
            table[resource.plural][0](obj)
    return obj


@asynccontextmanager
async def serving(*stored: tuple[Resource[Any], Any], storage: MemoryStorage | None = None) -> AsyncIterator[Assembly]:
    storage = storage or MemoryStorage()
    for resource, obj in stored:
        write = Write(resource.key_of(obj), obj.SerializeToString(), 0)
        assert isinstance(await storage.transact([write]), Committed)
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.opening.bootstrapped.wait()
            yield assembly
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def call(assembly: Assembly, resource: Resource[Any], method: str, request: Any) -> Any:
    answer = await assembly.methods[f"/{resource.service}/{method}"].call(request, Caller(PEOPLE["admin"]))
    return resource.message.FromString(answer)


async def get(assembly: Assembly, resource: Resource[Any], obj: Any) -> Any:
    return await call(assembly, resource, "Get", GetRequest(name=obj.metadata.name, namespace=obj.metadata.namespace))


async def write(assembly: Assembly, resource: Resource[Any], method: str, obj: Any, change: Change) -> Any:
    """Reads, changes and writes it, whoever else does: quotas are counted meanwhile."""
    request: Any = assembly.methods[f"/{resource.service}/{method}"].parse(b"")
    request.object.CopyFrom(await get(assembly, resource, obj))
    if STRATEGIES[resource.plural].allow_unconditional_update:
        request.object.metadata.resourceVersion = ""
    change(request.object)
    return await call(assembly, resource, method, request)


def test_stored_forms_cover_every_kind() -> None:
    assert BODIES.keys() | WITHOUT == STRATEGIES.keys() and BODIES.keys().isdisjoint(WITHOUT)
    with_status = {plural for plural, strategy in STRATEGIES.items() if isinstance(strategy, StatusStrategy)}
    assert STATUSES.keys() == with_status - {CUSTOM_RESOURCE_DEFINITIONS.plural, CRON_JOBS.plural}, "statuses without rules"


@every_resource
def test_stored_violations_are_rejected_in_new_objects(resource: Resource[Any]) -> None:
    """So that what follows is about something."""
    strategy, old = STRATEGIES[resource.plural], sound(resource)
    for table, prepare, judge in (
        (BODIES, strategy.prepare_update, strategy.validate_update),
        (STATUSES, strategy.prepare_status_update, strategy.validate_status_update),
    ):
        if resource.plural in table:
            new = copied(resource, old)
            table[resource.plural][1](new)
            prepare(new, old)
            assert judge(new, old) == []
            table[resource.plural][0](new)
            assert judge(new, old) != []


@pytest.mark.parametrize(
    "resource",
    [resource for resource in ALL if not STRATEGIES[resource.plural].finalizers_at_deletion],
    ids=lambda resource: resource.plural,
)
async def test_all_of_it_can_be_changed_reported_on_and_let_go(resource: Resource[Any]) -> None:
    obj = spoilt(resource)
    key = {"name": obj.metadata.name, "namespace": obj.metadata.namespace}
    async with serving((resource, obj)) as assembly:
        if resource.plural in BODIES:
            before = await get(assembly, resource, obj)
            assert await write(assembly, resource, "Update", obj, BODIES[resource.plural][1]) != before
        if resource.plural in STATUSES:
            before = await get(assembly, resource, obj)
            after = await write(assembly, resource, "UpdateStatus", obj, STATUSES[resource.plural][1])
            assert after.status != before.status
        patch = PatchRequest(
            type=PatchRequest.MERGE, patch=b'{"metadata":{"annotations":{"k0":null},"labels":{"e":"f"}}}', **key
        )
        assert (await call(assembly, resource, "Patch", patch)).metadata.labels["e"] == "f"
        await call(assembly, resource, "Delete", DeleteRequest(options={"gracePeriodSeconds": 0}, **key))
        gone = await write(assembly, resource, "Update", obj, lambda obj: obj.metadata.finalizers.remove(MINE))
        assert gone.metadata.HasField("deletionTimestamp") and list(gone.metadata.finalizers) == ["spoilt"]
        await write(assembly, resource, "Update", obj, lambda obj: obj.metadata.ClearField("finalizers"))
        with pytest.raises(Rejected, match="not found"):
            await get(assembly, resource, obj)


async def test_pod_is_let_go_by_its_gate_and_bound() -> None:
    pod = make_pod("old").req(cpu="1").new()
    STRATEGIES[PODS.plural].prepare_create(pod)
    pod.metadata.namespace, pod.metadata.uid = "default", "u"
    pod.spec.schedulingGates.add(name="example.com/gate")
    BODIES[PODS.plural][0](pod)
    async with serving((PODS, pod)) as assembly:
        await write(assembly, PODS, "Update", pod, lambda obj: obj.spec.ClearField("schedulingGates"))
        request = BindRequest()
        request.binding.metadata.name, request.binding.metadata.namespace, request.binding.target.name = "old", "default", "n"
        await assembly.methods["/pinnace.v1.Pods/Bind"].call(request, Caller(PEOPLE["admin"]))
        assert (await get(assembly, PODS, pod)).spec.nodeName == "n"


async def test_event_is_counted() -> None:
    old = sound(EVENTS)
    BODIES[EVENTS.plural][0](old)
    again = copied(EVENTS, old)
    again.metadata.Clear()
    again.metadata.name, again.metadata.namespace = old.metadata.name, old.metadata.namespace
    async with serving((EVENTS, old)) as assembly:
        request = CreateEventBatchRequest(items=[again])
        answer = await assembly.methods["/pinnace.v1.Events/Record"].call(request, Caller(PEOPLE["admin"]))
        assert not BatchResponse.FromString(answer).items[0].HasField("error")
        assert (await get(assembly, EVENTS, old)).count == 2 * old.count


async def test_stored_invalid_object_gets_no_new_violation() -> None:
    def worse(obj: Any) -> None:
        obj.spec.template.spec.containers[0].env.add(name="B", value="x\0y")
        obj.spec.replicas = -1

    old = make_deployment("old")
    template(old)
    async with serving((DEPLOYMENTS, old)) as assembly:
        with pytest.raises(Rejected) as refused:
            await write(assembly, DEPLOYMENTS, "Update", old, worse)
    fields = [violation.field for violation in refused.value.refusal.violations]
    assert sorted(fields) == ["spec.replicas", "spec.template.spec.containers[0].env[1].value"]


async def test_oversized_stored_object_may_not_grow() -> None:
    """But what else there is of the object may grow."""
    old = make_deployment("old")
    env = old.spec.template.spec.containers[0].env
    for number in range(MAX_PARTS + 1):
        env.add(name=f"A{number}")
    async with serving((DEPLOYMENTS, old)) as assembly:
        await write(assembly, DEPLOYMENTS, "Update", old, lambda obj: obj.metadata.labels.update(a="b"))
        await write(assembly, DEPLOYMENTS, "UpdateStatus", old, lambda obj: obj.status.conditions.add(type="a", status="True"))
        with pytest.raises(Rejected, match="too many items in lists and maps: at most 10,000"):
            await write(
                assembly,
                DEPLOYMENTS,
                "Update",
                old,
                lambda obj: obj.spec.template.spec.containers[0].env.add(name="more"),
            )
        more = b'[{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "more"}}]'
        patch = PatchRequest(name="old", namespace="default", type=PatchRequest.JSON, patch=more)
        with pytest.raises(Rejected, match="too many items in lists and maps: at most 10,000"):
            await call(assembly, DEPLOYMENTS, "Patch", patch)


def test_immutable_fields_stay_immutable_in_invalid_objects() -> None:
    strategy = STRATEGIES[SERVICES.plural]
    old = Service()
    old.metadata.name, old.metadata.namespace, old.metadata.resourceVersion = "old", "default", "1"
    old.spec.type, old.spec.clusterIP = "ClusterIP", "10.0.0.1"
    new = Service()
    new.CopyFrom(old)
    assert strategy.validate(old)
    assert not strategy.validate_update(new, old)
    new.spec.clusterIP = "10.0.0.2"
    assert [item.field for item in strategy.validate_update(new, old)] == ["spec.clusterIP"]


def test_valid_object_is_validated_once() -> None:
    """Statuses of pods are what is written most: the old one is judged only where something is wrong with the new one."""
    looked: list[Pod] = []

    class Counting(type(STRATEGIES[PODS.plural])):
        def check_status(self, obj: Pod, out: list[Violation]) -> None:
            looked.append(obj)
            super().check_status(obj, out)

    strategy, old = Counting(), sound(PODS)
    new = copied(PODS, old)
    new.status.message = "more"
    assert strategy.validate_status_update(new, old) == [] and looked == [new]
    new.status.podIP = "spoilt"
    assert len(strategy.validate_status_update(new, old)) == 1 and looked[1:] == [new, old]


def violations(*fields: str) -> list[Violation]:
    return [Violation(field, "wrong") for field in fields]


@pytest.mark.parametrize(
    ("found", "before", "expected"),
    [
        ("", "a", ""),
        ("a b", "a", "b"),
        ("a a", "a", "a"),
        ("a[1].b", "a[0].b", ""),
        ("a[0].b a[1].b", "a[1].b", "a[0].b"),
        ("a[0].b a[1].b a[2].b", "a[2].b a[5].b", "a[1].b"),
        ("a[0].b", "c[0].b", "a[0].b"),
    ],
)
def test_added_violations_are_found(found: str, before: str, expected: str) -> None:
    assert added_violations(violations(*found.split()), violations(*before.split())) == violations(*expected.split())


def test_many_violations_are_compared_in_few_steps() -> None:
    class Counted(str):
        comparisons = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Counted.comparisons += 1
            return super().__eq__(other)

    number = 10_000
    result, before = ([Violation(Counted(f"env[{index}]"), "wrong") for index in range(number)] for _ in range(2))
    assert added_violations(result, before) == []
    assert Counted.comparisons < 10 * number


async def test_unreadable_object_is_reported_and_affects_no_other() -> None:
    """One such Service ended every API server, when a quota was counted or somebody watched services by their labels."""
    quota = ResourceQuota()
    quota.metadata.name, quota.metadata.namespace, quota.metadata.uid = "q", "default", "u"
    quota.spec.hard["services"].string = "5"
    storage = MemoryStorage()
    for key, value in (
        (RESOURCE_QUOTAS.key_of(quota), quota.SerializeToString()),
        (SERVICES.key("default", "broken"), b"\xff"),
        (NAMESPACES.key("", "kube-public"), b"\xff"),
    ):
        assert isinstance(await storage.transact([Write(key, value, 0)]), Committed)
    named = {"name": "broken", "namespace": "default"}
    async with serving(storage=storage) as assembly:
        service = copied(SERVICES, sound(SERVICES))
        service.metadata.name, service.metadata.namespace = "broken", "default"
        create: Any = assembly.methods["/pinnace.v1.Services/Create"].parse(b"")
        create.object.CopyFrom(service)
        for method, request in (
            ("Get", GetRequest(**named)),
            ("Delete", DeleteRequest(**named)),
            ("Create", create),
            ("Patch", PatchRequest(type=PatchRequest.MERGE, patch=b"{}", **named)),
        ):
            with pytest.raises(Rejected, match='services "broken" cannot be decoded') as refused:
                await call(assembly, SERVICES, method, request)
            assert refused.value.refusal.code is Code.INTERNAL
        create.object.metadata.name = "sound"
        create.object.spec.ClearField("clusterIP")
        await call(assembly, SERVICES, "Create", create)
        counted = assembly.cacher.cache_of(RESOURCE_QUOTAS).watch(SelectionPredicate.parse(RESOURCE_QUOTAS, "", "", ""), None)
        used = ""
        async with asyncio.timeout(PATIENCE):
            while used != "1":
                told = ResourceQuotaWatchResponse.FromString(await anext(counted))
                used = told.events[-1].object.status.used["services"].string if told.events else used


async def test_deeply_nested_stored_object_can_be_deleted() -> None:
    deep = make_pod("deep").req(cpu="1").new()
    STRATEGIES[PODS.plural].prepare_create(deep)
    deep.metadata.namespace, deep.metadata.uid = "default", "u"
    async with serving((PODS, nested(deep, 99))) as assembly:
        request = DeleteRequest(name="deep", namespace="default", options={"gracePeriodSeconds": 0})
        await assembly.methods["/pinnace.v1.Pods/Delete"].call(request, Caller(PEOPLE["admin"]))
        with pytest.raises(Rejected, match="not found"):
            await get(assembly, PODS, deep)
