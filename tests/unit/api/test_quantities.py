"""Quantities inside objects: stored in canonical form, compared by value."""

from typing import Any

import pytest

from pinnace.api import quantities
from pinnace.api.codec import from_dict, to_dict
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import LimitRange, Pod
from pinnace.api.resources import (
    ALL,
    DEPLOYMENTS,
    JOBS,
    LIMIT_RANGES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    Resource,
)
from tests.unit.auth.matrix import OWN, serving
from tests.unit.registry.objects import CONTAINER, Data, pod
from tests.unit.registry.test_creating import asked, call


def sized(cpu: str, memory: str) -> Data:
    """The spec of a pod. The cpu request is defaulted from the limit."""
    return {"containers": [CONTAINER | {"resources": {"limits": {"cpu": cpu}, "requests": {"memory": memory}}}]}


def templated(cpu: str, memory: str, **more: Any) -> Data:
    labels = {} if "restartPolicy" in more else {"metadata": {"labels": {"app": "a"}}}
    return {"template": labels | {"spec": sized(cpu, memory) | more}}


def selecting(cpu: str, memory: str) -> Data:
    return {"selector": {"matchLabels": {"app": "a"}}} | templated(cpu, memory)


def claim(cpu: str, memory: str) -> Data:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": memory}}}


SPECS: dict[Resource[Any], Any] = {
    PODS: sized,
    DEPLOYMENTS: selecting,
    JOBS: lambda cpu, memory: templated(cpu, memory, restartPolicy="Never"),
    PERSISTENT_VOLUME_CLAIMS: claim,
    RESOURCE_QUOTAS: lambda cpu, memory: {"hard": {"requests.cpu": cpu, "requests.memory": memory}},
    LIMIT_RANGES: lambda cpu, memory: {"limits": [{"type": "Container", "max": {"cpu": cpu, "memory": memory}}]},
}


@pytest.mark.parametrize("resource", SPECS, ids=lambda resource: resource.plural)
async def test_update_with_equal_quantities_changes_nothing(resource: Resource[Any]) -> None:
    service = resource.service.rpartition(".")[2]
    async with serving() as assembly:

        async def write(verb: str, cpu: str, memory: str) -> Any:
            metadata = {"name": "a", "namespace": OWN, "finalizers": [*finalizers]}
            data = {"metadata": metadata, "spec": SPECS[resource](cpu, memory)}
            method = f"{service}/{verb}"
            return resource.message.FromString(await call(assembly, method, asked(assembly, method, from_dict(resource, data))))

        finalizers: list[str] = []
        first = await write("Create", "1000m", "1073741824")
        finalizers += first.metadata.finalizers
        assert await write("Update", "1", "1Gi") == first
        if resource not in (PODS, JOBS, PERSISTENT_VOLUME_CLAIMS):
            other = await write("Update", "2", "1Gi")
            assert other.metadata.resourceVersion != first.metadata.resourceVersion
            assert "2" in str(to_dict(other)["spec"]) and "1Gi" not in str(to_dict(other)["spec"])


def keeping(new: Data, old: Data) -> Pod:
    made = pod(**new)
    quantities.keep_equal(made, pod(**old))
    return made


def containers(**cpu: str) -> Data:
    return {"containers": [CONTAINER | {"name": name, "resources": {"requests": {"cpu": of}}} for name, of in cpu.items()]}


def cpus(made: Pod) -> dict[str, str]:
    return {container.name: container.resources.requests["cpu"].string for container in made.spec.containers}


def test_containers_are_matched_by_name() -> None:
    made = keeping(containers(new="1", b="2", a="1.0"), containers(a="1000m", b="2000m", c="1"))
    assert cpus(made) == {"new": "1", "b": "2000m", "a": "1000m"}


def test_changed_and_malformed_quantities_are_kept() -> None:
    made = pod()
    made.spec.CopyFrom(pod(**containers(a="1001m", b="2", c="3")).spec)
    made.spec.containers[1].resources.requests["cpu"].string = "many"
    quantities.keep_equal(made, pod(**containers(a="1", b="2000m", c="3.0")))
    assert cpus(made) == {"a": "1001m", "b": "many", "c": "3.0"}


def test_variables_with_duplicate_names_are_not_matched() -> None:
    def variables(*divisors: str) -> Data:
        fields = [{"resource": "limits.cpu", "divisor": divisor} for divisor in divisors]
        return {
            "containers": [CONTAINER | {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": field}} for field in fields]}]
        }

    made = keeping(variables("1", "1000m", "1.0"), variables("1", "1000m", "1m"))
    divisors = [item.valueFrom.resourceFieldRef.divisor.string for item in made.spec.containers[0].env]
    assert divisors == ["1", "1000m", "1.0"]


def test_absent_fields_stay_absent() -> None:
    volume = {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}
    old = {"volumes": [volume], "overhead": {"cpu": "1"}}
    bare = pod(volumes=[{"name": "v", "emptyDir": {}}])
    made = keeping({"volumes": [{"name": "v", "emptyDir": {}}]}, old)
    assert made == bare and made.SerializeToString(deterministic=True) == bare.SerializeToString(deterministic=True)


def test_identical_messages_are_not_compared_in_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most updates do not change the spec."""
    new, old = pod(**containers(a="1"), metadata={"labels": {"app": "a"}}), pod(**containers(a="1"))
    monkeypatch.setattr(quantities, "_keep_spellings", None)
    quantities.keep_equal(new, old)


def test_all_quantities_that_an_update_may_change_are_in_a_spec() -> None:
    assert quantities._holders_of(Lease.DESCRIPTOR) == ()
    assert [holder.name for holder in quantities._holders_of(LimitRange.DESCRIPTOR)] == ["spec"]
    names = {holder.name for resource in ALL for holder in quantities._holders_of(resource.message.DESCRIPTOR)}
    assert names == {"spec", "status", "overhead"}, "the overhead of a RuntimeClass keeps no other form of a quantity"


def test_canonicalize_rewrites_every_quantity_and_leaves_other_text() -> None:
    data = {
        "containers": [CONTAINER | {"resources": {"limits": {"cpu": ".5", "memory": "1000M"}}}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}],
    }
    made = pod(**data)
    made.spec.overhead["cpu"].string = "0.25"
    made.spec.containers[0].resources.requests["cpu"].string = "many"
    quantities.canonicalize(made)
    resources = made.spec.containers[0].resources
    assert {name: each.string for name, each in resources.limits.items()} == {"cpu": "500m", "memory": "1G"}
    assert resources.requests["cpu"].string == "many"
    assert made.spec.overhead["cpu"].string == "250m"
    assert made.spec.volumes[0].volumeSource.emptyDir.sizeLimit.string == "1Gi"


def test_equal_compares_quantities_by_value() -> None:
    one, other = pod(**sized("100m", "1Gi")), pod(**sized("0.1", "1073741824"))
    assert quantities.semantically_equal(one, other)
    other.spec.containers[0].image = "other"
    assert not quantities.semantically_equal(one, other)
    assert not quantities.semantically_equal(pod(**sized("100m", "1Gi")), pod(**sized("101m", "1Gi")))


@pytest.mark.parametrize("resource", SPECS, ids=lambda resource: resource.plural)
async def test_objects_are_stored_with_canonical_quantities(resource: Resource[Any]) -> None:
    """website#29227."""
    service = resource.service.rpartition(".")[2]
    async with serving() as assembly:
        data = {"metadata": {"name": "a", "namespace": OWN}, "spec": SPECS[resource](".5", "1000M")}
        method = f"{service}/Create"
        stored = resource.message.FromString(await call(assembly, method, asked(assembly, method, from_dict(resource, data))))
        shown = str(to_dict(stored)["spec"])
        assert "1G" in shown and "1000M" not in shown and ".5" not in shown


def test_cached_specs_are_canonicalized_correctly() -> None:
    """Known canonical specs are recognized, and are not confused with other specs."""
    for _ in range(2):
        for cpu, expected in (("1000m", "1"), ("1", "1"), ("2000m", "2"), ("nonsense", "nonsense")):
            made = pod(**containers(a="1"))
            made.spec.containers[0].resources.requests["cpu"].string = cpu
            quantities.canonicalize(made)
            assert made.spec.containers[0].resources.requests["cpu"].string == expected


def test_cache_of_canonical_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantities, "_MOST_KNOWN", 2)
    known = quantities.CanonicalMessageCache(Pod.DESCRIPTOR.fields_by_name["spec"].message_type)
    for number in range(5):
        spec = pod(**containers(a=f"{number}000m")).spec
        known.visit(spec)
        assert spec.containers[0].resources.requests["cpu"].string == f"{number}"
        assert 1 <= len(known) <= 2
    long = pod(**containers(a="1000m")).spec
    long.containers[0].command.append("x" * 10_000)
    before = len(known)
    known.visit(long)
    assert long.containers[0].resources.requests["cpu"].string == "1" and len(known) == before
