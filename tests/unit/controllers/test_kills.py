"""Controllers that are killed between any two of their writes: each at 100 points or more, and each with a planted bug that
the kills find. The stateful set controller has a file of its own."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.autoscaling import cpu_metric
from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.autoscaling_v2_pb2 import HorizontalPodAutoscaler
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim, Pod
from pinnace.api.resources import (
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    STORAGE_CLASSES,
    Resource,
    store_key,
)
from pinnace.api.scalars import to_time
from pinnace.api.wellknown import SELECTED_NODE, STORAGE_PROVISIONER
from pinnace.controllers.cronjob import CronJobController
from pinnace.controllers.daemonnodes import target_node
from pinnace.controllers.daemonset import DaemonSetController
from pinnace.controllers.deployment import DeploymentController
from pinnace.controllers.horizontalpodautoscaler import AutoscalerOptions, HorizontalPodAutoscalerController, ScaleDecision
from pinnace.controllers.job import JobController
from pinnace.controllers.job_status import FINALIZER, find_finished_condition
from pinnace.controllers.persistentvolume import PersistentVolumeController
from pinnace.controllers.replicaset import ReplicaSetController
from pinnace.controllers.runtime import ControllerContext
from pinnace.controllers.volume_provisioner import CLASS, PROVISIONER, VolumeProvisioner
from tests.killpoints import Build, KillableCluster, Scenario, run_killed_everywhere
from tests.workloads import make_deployment, make_job, make_replica_set

pytestmark = pytest.mark.slow
KEY = "default/web"
MINUTE = 60.0


async def run_kills(scenario: Scenario, build: Build, *verbs: str) -> Mapping[str, int]:
    """Kill a correct controller everywhere, at these verbs and kinds and no others. Return the number of kills by point."""
    points = await run_killed_everywhere(scenario, build)
    assert {name.rpartition(" ")[0] for name in points} == set(verbs)
    assert sum(points.values()) >= 100
    return points


def without_earlier(resource: Resource[Any], build: Build) -> Build:
    """Plant a bug: a new leader starts before its informers have the objects that earlier leaders have created."""

    def forgetful(context: ControllerContext) -> Any:
        informers: Any = context.informers
        informers._informer_of(resource).store.clear()
        return build(context)

    return forgetful


def active_pods(cluster: KillableCluster) -> list[Pod]:
    pods: list[Pod] = list(cluster.of(PODS).values())
    return [
        pod for pod in pods if pod.status.phase in ("Pending", "Running") and not pod.metadata.HasField("deletionTimestamp")
    ]


# --- replica sets


async def scale_replica_set(cluster: KillableCluster) -> None:
    def keep_count(verb: str, resource: Resource[Any], obj: Any) -> None:
        if (verb, resource) == ("create", PODS):
            assert len(active_pods(cluster)) < cluster.of(REPLICA_SETS)[KEY].spec.replicas

    cluster.between.append(cluster.run_pods)
    cluster.checks.append(keep_count)
    cluster.create(REPLICA_SETS, make_replica_set("web", replicas=3))
    for replicas in (3, 8, 2, 7, 0, 6):
        cluster.change(REPLICA_SETS, KEY, partial(set_replicas, replicas=replicas))
        await cluster.settle()
        assert len(active_pods(cluster)) == cluster.of(REPLICA_SETS)[KEY].status.readyReplicas == replicas


def set_replicas(obj: Any, replicas: int) -> None:
    obj.spec.replicas = replicas


async def test_replica_set_never_has_surplus_pods() -> None:
    await run_kills(scale_replica_set, ReplicaSetController, "create pods", "delete pods", "update status of replicasets")


# --- daemon sets


async def roll_daemon_set(cluster: KillableCluster) -> None:
    def keep_one_for_each_node(verb: str, resource: Resource[Any], obj: Any) -> None:
        if (verb, resource) == ("create", PODS):
            assert target_node(obj) not in map(target_node, cluster.of(PODS).values())

    def bind_pods() -> bool:
        unbound = [pod for pod in cluster.of(PODS).values() if not pod.spec.nodeName]
        for pod in unbound:
            cluster.change(PODS, store_key(pod), lambda pod: setattr(pod.spec, "nodeName", target_node(pod)))
        return bool(unbound)

    cluster.between += [bind_pods, cluster.run_pods]
    cluster.checks.append(keep_one_for_each_node)
    nodes = [f"node-{number}" for number in range(3)]
    for node in nodes:
        cluster.create(NODES, from_dict(NODES, {"metadata": {"name": node}}))
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    spec = {"selector": {"matchLabels": labels}, "template": template, "revisionHistoryLimit": 1, "updateStrategy": rolling}
    cluster.create(DAEMON_SETS, from_dict(DAEMON_SETS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}))
    for image in ("app:1", "app:2", "app:3", "app:2"):
        cluster.change(DAEMON_SETS, KEY, partial(set_image, image=image))
        await cluster.settle()
        images = {pod.spec.nodeName: pod.spec.containers[0].image for pod in cluster.of(PODS).values()}
        assert images == dict.fromkeys(nodes, image) and len(cluster.of(PODS)) == 3
    assert sorted(revision.revision for revision in cluster.of(CONTROLLER_REVISIONS).values()) == [3, 4]


def set_image(obj: Any, image: str) -> None:
    obj.spec.template.spec.containers[0].image = image


async def test_node_never_has_two_pods_of_a_daemon_set() -> None:
    verbs = (
        "create controllerrevisions", "update controllerrevisions", "delete controllerrevisions", "create pods", "delete pods",
        "update status of daemonsets",
    )  # fmt: skip
    await run_kills(roll_daemon_set, DaemonSetController, *verbs)


# --- deployments


async def roll_deployment(cluster: KillableCluster) -> None:
    """The test is the replica set controller: its pods are available at once."""

    def total() -> int:
        return sum(replica_set.spec.replicas for replica_set in cluster.of(REPLICA_SETS).values())

    def keep_bounds(verb: str, resource: Resource[Any], obj: Any) -> None:
        assert total() <= 6, "four replicas and a surge of a quarter, while the old ones are scaled down"
        if (verb, resource) == ("create", REPLICA_SETS):
            images = [each.spec.template.spec.containers[0].image for each in cluster.of(REPLICA_SETS).values()]
            assert obj.spec.template.spec.containers[0].image not in images, "a template has one replica set"

    def run_replica_sets() -> bool:
        late = [each for each in cluster.of(REPLICA_SETS).values() if each.status.availableReplicas != each.spec.replicas]
        for replica_set in late:
            cluster.change(REPLICA_SETS, store_key(replica_set), complete)
        return bool(late)

    def complete(replica_set: ReplicaSet) -> None:
        status = replica_set.status
        status.replicas = status.readyReplicas = status.availableReplicas = replica_set.spec.replicas
        status.observedGeneration = replica_set.metadata.generation

    cluster.between.append(run_replica_sets)
    cluster.checks.append(keep_bounds)
    cluster.create(DEPLOYMENTS, make_deployment("web", replicas=4, revisionHistoryLimit=1))
    for revision, image in enumerate(("app:1", "app:2", "app:3", "app:2", "app:4"), 1):
        cluster.change(DEPLOYMENTS, KEY, partial(set_image, image=image))
        await cluster.settle(60.0)
        sizes = {each.spec.template.spec.containers[0].image: each.spec.replicas for each in cluster.of(REPLICA_SETS).values()}
        deployment: Deployment = cluster.of(DEPLOYMENTS)[KEY]
        assert sizes[image] == total() == 4 and len(sizes) <= 2
        assert deployment.metadata.annotations["deployment.kubernetes.io/revision"] == str(revision)
        assert (deployment.status.updatedReplicas, deployment.status.collisionCount) == (4, 0)


class CollidingDeployments(DeploymentController):
    """A bug: a new leader makes another replica set for the template that an earlier leader was rolling out."""

    def __init__(self, shared: ControllerContext) -> None:
        informers: Any = shared.informers
        informers._informer_of(REPLICA_SETS).store.clear()
        super().__init__(shared)

    async def _resolve_name_collision(self, key: str, deployment: Deployment, new: ReplicaSet) -> None:
        status = type(deployment.status)()
        status.CopyFrom(deployment.status)
        status.collisionCount += 1
        await self._write_status(key, deployment, status)


async def test_template_of_a_deployment_has_one_replica_set() -> None:
    verbs = (
        "create replicasets", "update replicasets", "delete replicasets", "update deployments", "update status of deployments",
    )  # fmt: skip
    await run_kills(roll_deployment, DeploymentController, *verbs)


# --- jobs


async def run_job(cluster: KillableCluster) -> None:
    """An indexed job, whose pods succeed."""

    def keep_indexes(verb: str, resource: Resource[Any], obj: Any) -> None:
        if (verb, resource) == ("create", PODS):
            index = obj.metadata.annotations["batch.kubernetes.io/job-completion-index"]
            same = [pod for pod in cluster.of(PODS).values() if pod.metadata.labels[index_label] == index]
            assert not same, "an index has one pod"

    index_label = "batch.kubernetes.io/job-completion-index"
    cluster.between += [cluster.run_pods, cluster.finish_pods]
    cluster.checks.append(keep_indexes)
    completions = 20
    cluster.create(JOBS, make_job("web", completions=completions, parallelism=4, completionMode="Indexed"))
    await cluster.settle()
    job: Job = cluster.of(JOBS)[KEY]
    end = find_finished_condition(job)
    assert end is not None and end.type == "Complete"
    assert (job.status.succeeded, job.status.failed, job.status.completedIndexes) == (completions, 0, "0-19")
    assert len(cluster.of(PODS)) == completions
    assert not any(FINALIZER in pod.metadata.finalizers for pod in cluster.of(PODS).values())


async def test_index_of_a_job_has_one_pod_and_is_counted_once() -> None:
    await run_kills(run_job, JobController, "create pods", "update pods", "update status of jobs")


# --- cron jobs


def run_cron_job(policy: str) -> Scenario:
    """Jobs finish at once and are deleted at once (history limit 0), which frees their names."""
    minutes = 13

    async def scenario(cluster: KillableCluster) -> None:
        def finish_jobs() -> bool:
            late = [job for job in cluster.of(JOBS).values() if not job.status.conditions]
            for job in late:
                cluster.change(JOBS, store_key(job), finish)
            return bool(late)

        def finish(job: Job) -> None:
            job.status.conditions.add(type="Complete", status="True")
            job.status.completionTime.CopyFrom(to_time(cluster.now))

        cluster.between.append(finish_jobs)
        template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}}}
        spec = {"schedule": "* * * * *", "concurrencyPolicy": policy, "jobTemplate": template}
        limits = {"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0}
        body = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec | limits}
        cluster.create(CRON_JOBS, from_dict(CRON_JOBS, body))
        for _ in range(minutes):
            await cluster.settle(MINUTE)
        twice = [name for name, count in Counter(cluster.created).items() if count > 1]
        assert not twice and len(cluster.created) == minutes and not cluster.of(JOBS)

    return scenario


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
async def test_time_of_a_cron_job_has_one_job(policy: str) -> None:
    await run_kills(run_cron_job(policy), CronJobController, "create jobs", "delete jobs", "update status of cronjobs")


# --- autoscalers


class HastyAutoscaler(HorizontalPodAutoscalerController):
    """A bug: it writes the status before the scale, and does nothing for a decision that is in its status."""

    async def _compute_replicas(self, autoscaler: HorizontalPodAutoscaler, scale: Scale, *rest: Any) -> ScaleDecision:
        decision = await super()._compute_replicas(autoscaler, scale, *rest)
        same = decision.replicas == autoscaler.status.desiredReplicas
        return ScaleDecision(decision.statuses) if same else decision

    async def _rescale(self, autoscaler: HorizontalPodAutoscaler, resource: Any, scale: Scale, decision: ScaleDecision) -> bool:
        autoscaler.status.desiredReplicas = decision.replicas or 0
        stored = await self._client.of(HORIZONTAL_POD_AUTOSCALERS).update_status(autoscaler)
        autoscaler.metadata.resourceVersion = stored.metadata.resourceVersion
        return await super()._rescale(autoscaler, resource, scale, decision)


async def autoscale(cluster: KillableCluster) -> None:
    """Two replicas at 50 % of one core follow the usage. The test is the deployment controller."""

    def keep_limits(verb: str, resource: Resource[Any], obj: Any) -> None:
        if resource is DEPLOYMENTS:
            assert 1 <= obj.spec.replicas <= 8

    def run_deployment() -> bool:
        wanted, pods = cluster.of(DEPLOYMENTS)[KEY].spec.replicas, list(cluster.of(PODS).values())
        for pod in pods[wanted:]:
            cluster.remove(PODS, pod)
        for number in range(len(pods), wanted):
            pod = Pod()
            pod.metadata.name, pod.metadata.namespace = f"web-{number}-{cluster.revision}", "default"
            pod.metadata.labels["app"] = "web"
            pod.spec.containers.add(name="main").resources.requests["cpu"].string = "1"
            cluster.create(PODS, pod)
        return len(pods) != wanted

    cluster.between += [run_deployment, cluster.run_pods]
    cluster.checks.append(keep_limits)
    cluster.create(DEPLOYMENTS, make_deployment("web", replicas=2))
    autoscaler = HorizontalPodAutoscaler()
    autoscaler.metadata.name, autoscaler.metadata.namespace = "web", "default"
    target = autoscaler.spec.scaleTargetRef
    target.kind, target.name, target.apiVersion = "Deployment", "web", "apps/v1"
    autoscaler.spec.minReplicas, autoscaler.spec.maxReplicas = 1, 8
    autoscaler.spec.metrics.append(cpu_metric(50))
    cluster.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler)
    for usage in ("500m", "900m", "100m", "900m", "100m", "1000m", "100m", "900m", "200m", "1100m", "100m", "1400m"):
        cluster.usage = usage
        await cluster.settle(400.0)
    await cluster.settle(400.0)  # a new leader does not know the recommendations of earlier ones
    status = cluster.of(HORIZONTAL_POD_AUTOSCALERS)[KEY].status
    assert cluster.of(DEPLOYMENTS)[KEY].spec.replicas == status.desiredReplicas == 8
    assert status.currentMetrics[0].resource.current.averageUtilization == 140


AUTOSCALING = AutoscalerOptions(sync_period=100.0, downscale_stabilization=200.0)


async def test_autoscaler_reaches_the_size() -> None:
    verbs = ("update scale of deployments", "update status of horizontalpodautoscalers")
    await run_kills(autoscale, partial(HorizontalPodAutoscalerController, options=AUTOSCALING), *verbs)


# --- volumes


def make_claim(name: str, class_name: str = "") -> PersistentVolumeClaim:
    claim = PersistentVolumeClaim()
    claim.metadata.name, claim.metadata.namespace = name, "default"
    claim.spec.accessModes[:], claim.spec.storageClassName = ["ReadWriteOnce"], class_name
    claim.spec.resources.requests["storage"].string = "1Gi"
    claim.status.phase = "Pending"
    return claim


def make_volume(name: str, size: str) -> PersistentVolume:
    volume = PersistentVolume()
    volume.metadata.name, volume.status.phase = name, "Available"
    volume.spec.accessModes[:], volume.spec.persistentVolumeReclaimPolicy = ["ReadWriteOnce"], "Delete"
    volume.spec.capacity["storage"].string = size
    volume.spec.persistentVolumeSource.hostPath.path = f"/tmp/{name}"
    return volume


async def bind_volumes(cluster: KillableCluster) -> None:
    """Claims are bound to volumes of their own, and deleted volumes are reclaimed."""
    numbers = range(9)
    for number in numbers:
        cluster.create(PERSISTENT_VOLUMES, make_volume(f"disk-{number}", f"{number + 1}Gi"))
        cluster.create(PERSISTENT_VOLUME_CLAIMS, make_claim(f"data-{number}"))
    await cluster.settle(60.0)
    claims = list(cluster.of(PERSISTENT_VOLUME_CLAIMS).values())
    volumes: dict[str, PersistentVolume] = cluster.of(PERSISTENT_VOLUMES)
    assert {claim.status.phase for claim in claims} == {volume.status.phase for volume in volumes.values()} == {"Bound"}
    assert len({claim.spec.volumeName for claim in claims}) == len(claims)
    assert all(volumes[claim.spec.volumeName].spec.claimRef.uid == claim.metadata.uid for claim in claims)
    for claim in claims:
        cluster.delete(PERSISTENT_VOLUME_CLAIMS, claim)
    await cluster.settle(60.0)
    assert not cluster.of(PERSISTENT_VOLUMES)


async def test_volume_is_bound_to_one_claim() -> None:
    verbs = (
        "update persistentvolumes", "update status of persistentvolumes", "delete persistentvolumes",
        "update persistentvolumeclaims", "update status of persistentvolumeclaims",
    )  # fmt: skip
    await run_kills(bind_volumes, PersistentVolumeController, *verbs)


def write_file(directory: Path) -> None:
    directory.mkdir()
    (directory / "file").write_text("data")


def list_directory(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def provision_volumes(directory: Path) -> Scenario:
    """The test is the kubelet, which creates directories, and the volume controller, which releases volumes."""

    async def scenario(cluster: KillableCluster) -> None:
        cluster.create(NAMESPACES, from_dict(NAMESPACES, {"metadata": {"name": "default"}}))
        for number in range(25):
            claim = make_claim(f"data-{number}", CLASS)
            claim.metadata.annotations.update({STORAGE_PROVISIONER: PROVISIONER, SELECTED_NODE: "node-0"})
            cluster.create(PERSISTENT_VOLUME_CLAIMS, claim)
        await cluster.settle()
        volumes = list(cluster.of(PERSISTENT_VOLUMES).values())
        claims = {claim.metadata.uid for claim in cluster.of(PERSISTENT_VOLUME_CLAIMS).values()}
        assert sorted(volume.spec.claimRef.uid for volume in volumes) == sorted(claims)
        for volume in volumes:
            write_file(Path(volume.spec.persistentVolumeSource.hostPath.path))
            cluster.change(PERSISTENT_VOLUMES, store_key(volume), lambda volume: setattr(volume.status, "phase", "Released"))
        for claim in list(cluster.of(PERSISTENT_VOLUME_CLAIMS).values()):
            cluster.remove(PERSISTENT_VOLUME_CLAIMS, claim)
        await cluster.settle()
        assert not cluster.of(PERSISTENT_VOLUMES) and not list_directory(directory)
        assert list(cluster.of(STORAGE_CLASSES)) == [CLASS]

    return scenario


class VolumesFirst(VolumeProvisioner):
    """A bug: it deletes a volume before its directory."""

    async def _sync_volume(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is not None and volume.status.phase == "Released":
            await self._volumes_client.delete(name)
            path = self._directory / name
            (path / "file").unlink(missing_ok=True)
            path.rmdir()


async def test_claim_has_one_provisioned_volume_whose_directory_is_removed(tmp_path: Path) -> None:
    verbs = ("create storageclasses", "create persistentvolumes", "delete persistentvolumes")
    await run_kills(provision_volumes(tmp_path), lambda context: VolumeProvisioner(context, tmp_path), *verbs)


# --- planted bugs


BUGS: Mapping[str, tuple[Scenario, Build]] = {
    "replicaset": (scale_replica_set, without_earlier(PODS, ReplicaSetController)),
    "daemonset": (roll_daemon_set, without_earlier(PODS, DaemonSetController)),
    "deployment": (roll_deployment, CollidingDeployments),
    "job": (run_job, without_earlier(PODS, JobController)),
    "horizontalpodautoscaler": (autoscale, partial(HastyAutoscaler, options=AUTOSCALING)),
    "persistentvolume": (bind_volumes, without_earlier(PERSISTENT_VOLUMES, PersistentVolumeController)),
}


@pytest.mark.parametrize("name", BUGS)
async def test_kills_find_planted_bug(name: str) -> None:
    scenario, build = BUGS[name]
    await scenario(KillableCluster(build))  # nobody finds it without a kill
    with pytest.raises(AssertionError):
        await run_killed_everywhere(scenario, build)


async def test_kills_find_planted_bug_in_cronjob(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of Kubernetes: a finished job is deleted before its time is recorded."""
    monkeypatch.setattr("pinnace.controllers.cronjob.find_recovered_jobs", lambda *args: [])
    scenario = run_cron_job("Allow")
    await scenario(KillableCluster(CronJobController))
    with pytest.raises(AssertionError):
        await run_killed_everywhere(scenario, CronJobController)


async def test_kills_find_planted_bug_in_provisioner(tmp_path: Path) -> None:
    scenario, build = provision_volumes(tmp_path), partial(VolumesFirst, directory=tmp_path)
    await scenario(KillableCluster(build))
    with pytest.raises(AssertionError):
        await run_killed_everywhere(scenario, build)
