"""Builders of workloads: replica sets, deployments and jobs as the API server returns them, and pods of theirs.

web = make_replica_set("web", replicas=3)
pod_of(web, "a").node("n1").phase("Running").ready_since(1.0).build()
"""

from typing import Any

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet, StatefulSet
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import Object
from pinnace.api.scalars import to_time
from tests.builders import PodBuilder, make_pod

LABELS = {"app": "web"}


def make_replica_set(name: str, *, replicas: int = 1, uid: str = "", created: float = 0.0, **spec: Any) -> ReplicaSet:
    """Of pods with the label app=web. `spec`: further fields of ReplicaSetSpec."""
    made = ReplicaSet(metadata=_metadata(name, uid, created))
    _replicated(made.spec, replicas, spec)
    return made


def make_deployment(name: str, *, replicas: int = 1, image: str = "app:1", **spec: Any) -> Deployment:
    """Rolls as `spec` says, fields of DeploymentSpec; a quarter at a time if it says nothing."""
    made = Deployment(metadata=_metadata(name, "", 0.0))
    made.spec.progressDeadlineSeconds, made.spec.revisionHistoryLimit = 600, 10
    _replicated(made.spec, replicas, spec, image)
    if not made.spec.strategy.type:
        made.spec.strategy.type = "RollingUpdate"
        made.spec.strategy.rollingUpdate.maxSurge.type = made.spec.strategy.rollingUpdate.maxUnavailable.type = 1
        made.spec.strategy.rollingUpdate.maxSurge.strVal = made.spec.strategy.rollingUpdate.maxUnavailable.strVal = "25%"
    return made


def make_stateful_set(
    name: str,
    *,
    replicas: int = 1,
    image: str = "app:1",
    claims: tuple[str, ...] = (),
    retention: tuple[str, str] = ("Retain", "Retain"),
    **spec: Any,
) -> StatefulSet:
    """Of pods with the label app=web. `claims`: names of claim templates. `retention`: whenDeleted, whenScaled. `spec`: further
    fields of StatefulSetSpec."""
    made = StatefulSet(metadata=_metadata(name, "", 0.0))
    made.spec.serviceName, made.spec.revisionHistoryLimit, made.spec.podManagementPolicy = name, 10, "OrderedReady"
    made.spec.persistentVolumeClaimRetentionPolicy.whenDeleted = retention[0]
    made.spec.persistentVolumeClaimRetentionPolicy.whenScaled = retention[1]
    for claim in claims:
        made.spec.volumeClaimTemplates.add().metadata.name = claim
    _replicated(made.spec, replicas, spec, image)
    if not made.spec.updateStrategy.type:
        made.spec.updateStrategy.type = "RollingUpdate"
        made.spec.updateStrategy.rollingUpdate.partition = 0
    return made


def make_job(name: str, **spec: Any) -> Job:
    """One pod, once, unless `spec` says otherwise: fields of JobSpec."""
    made = Job(metadata=_metadata(name, "", 0.0))
    made.spec.selector.matchLabels["batch.kubernetes.io/controller-uid"] = made.metadata.uid
    made.spec.template.metadata.labels["batch.kubernetes.io/controller-uid"] = made.metadata.uid
    made.spec.template.spec.containers.add(name="c0", image="app:1")
    made.spec.template.spec.restartPolicy = "Never"
    made.spec.parallelism, made.spec.backoffLimit, made.spec.completionMode = 1, 6, "NonIndexed"
    made.spec.podReplacementPolicy = "TerminatingOrFailed"
    if "parallelism" not in spec:
        made.spec.completions = 1
    for field, value in spec.items():
        setattr(made.spec, field, value)
    return made


def pod_of(owner: ReplicaSet | StatefulSet | Job, name: str, *, labels: dict[str, str] | None = None) -> PodBuilder:
    """A pending pod of the owner."""
    pod = make_pod(name).owner(owner.DESCRIPTOR.name, owner.metadata.name, owner.metadata.uid)
    for key, value in (owner.spec.template.metadata.labels if labels is None else labels).items():
        pod.label(key, value)
    return pod


def running(pod: PodBuilder, *, since: float = 1.0) -> PodBuilder:
    """Ready since then, on a node."""
    return pod.node("n").phase("Running").ready_since(since)


def named(objs: Any) -> list[str]:
    """Their names, as they come."""
    return [obj.metadata.name for obj in objs]


def deleting(obj: Object) -> None:
    obj.metadata.deletionTimestamp.CopyFrom(to_time(1.0))


def _metadata(name: str, uid: str, created: float) -> ObjectMeta:
    made = ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}", resourceVersion="1", generation=1)
    made.creationTimestamp.CopyFrom(to_time(created))
    return made


def _replicated(made: Any, replicas: int, spec: dict[str, Any], image: str = "app:1") -> None:
    made.replicas = replicas
    made.selector.matchLabels.update(LABELS)
    made.template.metadata.labels.update(LABELS)
    made.template.spec.containers.add(name="c0", image=image)
    for field, value in spec.items():
        if hasattr(value, "DESCRIPTOR"):
            getattr(made, field).CopyFrom(value)
        else:
            setattr(made, field, value)
