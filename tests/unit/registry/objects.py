"""Objects for the tables of the validation tests: a sound one, with something changed."""

from typing import Any

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, Object, Resource
from pinnace.apiserver.registry.strategies import STRATEGIES

Data = dict[str, Any]

CONTAINER: Data = {"name": "c", "image": "app:1"}


def pod(container: Data | None = None, metadata: Data | None = None, **spec: Any) -> Pod:
    """A pod that is sound, but for what is given: fields of its only container, of its metadata, of its spec."""
    data = {
        "metadata": {"name": "a", "namespace": "default", **(metadata or {})},
        "spec": {"containers": [CONTAINER | (container or {})], **spec},
    }
    return from_dict(PODS, data)


def created(resource: Resource[Any], obj: Object) -> list[str]:
    """What is wrong with a new object, after defaults."""
    strategy = STRATEGIES[resource.plural]
    strategy.prepare_create(obj)
    return [str(violation) for violation in strategy.validate(obj)]


def ready(obj: Pod) -> Pod:
    """A pod as it is stored after its creation; raises if it is not sound."""
    assert created(PODS, obj) == []
    obj.metadata.uid = "uid-a"
    obj.metadata.generation = 1
    obj.metadata.creationTimestamp.seconds = 1_700_000_000
    return obj


def copy(obj: Pod) -> Pod:
    result = Pod()
    result.CopyFrom(obj)
    return result


def updated(new: Pod, old: Pod) -> list[str]:
    """What is wrong with an update of a pod's spec and metadata."""
    return changed(PODS, new, old)


def status_updated(new: Pod, old: Pod) -> list[str]:
    """What is wrong with an update of a pod's status."""
    return status_changed(PODS, new, old)


def changed(resource: Resource[Any], new: Object, old: Object) -> list[str]:
    """What is wrong with an update of spec and metadata."""
    strategy = STRATEGIES[resource.plural]
    strategy.prepare_update(new, old)
    return [str(violation) for violation in strategy.validate_update(new, old)]


def status_changed(resource: Resource[Any], new: Object, old: Object) -> list[str]:
    """What is wrong with an update of the status."""
    strategy = STRATEGIES[resource.plural]
    strategy.prepare_status_update(new, old)
    return [str(violation) for violation in strategy.validate_status_update(new, old)]


def labels(number: int) -> dict[str, str]:
    return {f"k{index}": "v" for index in range(number)}
