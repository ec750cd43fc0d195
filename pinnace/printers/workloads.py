"""The tables of pods and of the objects that own or protect pods.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from collections.abc import Iterable

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet
from pinnace.api.batch_v1_pb2 import CronJob, Job
from pinnace.api.core_v1_pb2 import Container, ContainerStateTerminated, ContainerStatus, Pod
from pinnace.api.pods import ended
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.scalars import int_or_string, to_seconds
from pinnace.printers.columns import NONE, WIDE, Columns, format_age, format_labels, human_duration, is_set, wide_cells

NODE_LOST = "NodeLost"
_CONDITIONS = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
NOT_APPLICABLE = "N/A"


def pod_row(pod: Pod, now: float) -> tuple[str, ...]:
    ready, total = pod_readiness(pod)
    ips = [ip.ip for ip in pod.status.podIPs] or [pod.status.podIP]
    return (
        pod.metadata.name,
        f"{ready}/{total}",
        pod_status(pod),
        format_restarts(pod, now),
        format_age(pod.metadata.creationTimestamp, now),
        ips[0] or NONE,
        pod.spec.nodeName or NONE,
        pod.status.nominatedNodeName or NONE,
        _count_readiness_gates(pod),
    )


PODS = Columns(
    headers=("NAME", "READY", "STATUS", "RESTARTS", "AGE"),
    wide=("IP", "NODE", "NOMINATED NODE", "READINESS GATES"),
    row=pod_row,
)


def pod_readiness(pod: Pod) -> tuple[int, int]:
    """Ready containers and total number, including sidecars."""
    sidecars = _sidecar_names(pod)
    ready = sum(s.ready and s.started for s in pod.status.initContainerStatuses if s.name in sidecars)
    if not _is_initializing(pod):
        ready += sum(s.ready and s.state.HasField("running") for s in pod.status.containerStatuses)
    return ready, len(pod.spec.containers) + len(sidecars)


def format_restarts(pod: Pod, now: float) -> str:
    """Restarts, such as "3 (2m ago)": of init containers while they run, then of containers and sidecars."""
    if _is_initializing(pod):
        counted: list[ContainerStatus] = list(pod.status.initContainerStatuses)
    else:
        sidecars = _sidecar_names(pod)
        counted = [s for s in pod.status.initContainerStatuses if s.name in sidecars] + list(pod.status.containerStatuses)
    count = sum(s.restartCount for s in counted)
    ends = [s.lastState.terminated.finishedAt for s in counted if is_set(s.lastState.terminated.finishedAt)]
    if not count or not ends:
        return str(count)
    return f"{count} ({human_duration(now - max(to_seconds(end) for end in ends))} ago)"


def pod_status(pod: Pod) -> str:
    """The STATUS column."""
    if is_set(pod.metadata.deletionTimestamp):
        if pod.status.reason == NODE_LOST:
            return "Unknown"
        if not ended(pod):
            return "Terminating"
    if pod.status.phase == "Failed" and pod.status.reason:
        return pod.status.reason  # Evicted, although its containers have exit code 0
    reason = pod.status.reason or pod.status.phase or "Unknown"
    scheduled = conditions.find_condition(pod.status.conditions, "PodScheduled")
    if scheduled and scheduled.reason == "SchedulingGated":
        reason = scheduled.reason
    if init := _init_reason(pod):
        reason = init
        if not conditions.is_condition_true(pod.status.conditions, "Initialized"):
            return reason
    return _container_reason(pod, reason)


def _container_reason(pod: Pod, otherwise: str) -> str:
    reason, running = otherwise, False
    for container in reversed(pod.status.containerStatuses):
        state = container.state
        if state.waiting.reason:
            reason = state.waiting.reason
        elif state.HasField("terminated"):
            reason = _termination_reason(state.terminated)
        elif container.ready and state.HasField("running"):
            running = True
    if reason == "Completed" and running:
        return "Running" if conditions.is_condition_true(pod.status.conditions, "Ready") else "NotReady"
    return reason


def _init_reason(pod: Pod) -> str:
    """The status of the first unfinished init container; empty if all are done."""
    sidecars = _sidecar_names(pod)
    for index, container in enumerate(pod.status.initContainerStatuses):
        state = container.state
        done = state.HasField("terminated") and not state.terminated.exitCode
        if done or (container.name in sidecars and container.started):
            continue
        if state.HasField("terminated"):
            return f"Init:{_termination_reason(state.terminated)}"
        if state.waiting.reason and state.waiting.reason != "PodInitializing":
            return f"Init:{state.waiting.reason}"
        return f"Init:{index}/{len(pod.spec.initContainers)}"
    return ""


def _count_readiness_gates(pod: Pod) -> str:
    """Number of true values, such as "1/2"."""
    gates = pod.spec.readinessGates
    passed = sum(conditions.is_condition_true(pod.status.conditions, gate.conditionType) for gate in gates)
    return f"{passed}/{len(gates)}" if gates else NONE


def _is_initializing(pod: Pod) -> bool:
    return bool(_init_reason(pod)) and not conditions.is_condition_true(pod.status.conditions, "Initialized")


def _termination_reason(terminated: ContainerStateTerminated) -> str:
    if terminated.reason:
        return terminated.reason
    return f"Signal:{terminated.signal}" if terminated.signal else f"ExitCode:{terminated.exitCode}"


def _sidecar_names(pod: Pod) -> set[str]:
    """Names of sidecars."""
    containers: Iterable[Container] = pod.spec.initContainers
    return {container.name for container in containers if container.restartPolicy == "Always"}


def replica_set_row(replica_set: ReplicaSet, now: float) -> tuple[str, ...]:
    spec, status = replica_set.spec, replica_set.status
    return (
        replica_set.metadata.name,
        str(spec.replicas),
        str(status.replicas),
        str(status.readyReplicas),
        format_age(replica_set.metadata.creationTimestamp, now),
        *wide_cells(spec.template, spec.selector),
    )


REPLICA_SETS = Columns(
    headers=("NAME", "DESIRED", "CURRENT", "READY", "AGE"),
    wide=WIDE,
    row=replica_set_row,
)


def deployment_row(deployment: Deployment, now: float) -> tuple[str, ...]:
    spec, status = deployment.spec, deployment.status
    return (
        deployment.metadata.name,
        f"{status.readyReplicas}/{spec.replicas}",
        str(status.updatedReplicas),
        str(status.availableReplicas),
        format_age(deployment.metadata.creationTimestamp, now),
        *wide_cells(spec.template, spec.selector),
    )


DEPLOYMENTS = Columns(
    headers=("NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"),
    wide=WIDE,
    row=deployment_row,
)


def stateful_set_row(stateful_set: StatefulSet, now: float) -> tuple[str, ...]:
    spec, status = stateful_set.spec, stateful_set.status
    return (
        stateful_set.metadata.name,
        f"{status.readyReplicas}/{spec.replicas}",
        format_age(stateful_set.metadata.creationTimestamp, now),
        *wide_cells(spec.template, spec.selector)[:2],
    )


STATEFUL_SETS = Columns(headers=("NAME", "READY", "AGE"), wide=WIDE[:2], row=stateful_set_row)


def controller_revision_row(revision: ControllerRevision, now: float) -> tuple[str, ...]:
    metadata = revision.metadata
    controller = next((reference for reference in metadata.ownerReferences if reference.controller), None)
    name = NONE
    if controller is not None:
        group = controller.apiVersion.rpartition("/")[0]
        name = f"{'.'.join(filter(None, (controller.kind, group))).lower()}/{controller.name}"
    return metadata.name, name, str(revision.revision), format_age(metadata.creationTimestamp, now)


CONTROLLER_REVISIONS = Columns(headers=("NAME", "CONTROLLER", "REVISION", "AGE"), wide=(), row=controller_revision_row)


def job_row(job: Job, now: float) -> tuple[str, ...]:
    return (
        job.metadata.name,
        job_status(job),
        job_completions(job),
        job_duration(job, now),
        format_age(job.metadata.creationTimestamp, now),
        *wide_cells(job.spec.template, job.spec.selector),
    )


JOBS = Columns(
    headers=("NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"),
    wide=WIDE,
    row=job_row,
)


def job_status(job: Job) -> str:
    """The STATUS column."""
    said = {condition.type for condition in job.status.conditions if condition.status == "True"}
    for end in ("Complete", "Failed"):
        if end in said:
            return end
    if is_set(job.metadata.deletionTimestamp):
        return "Terminating"
    return next((condition for condition in _CONDITIONS if condition in said), "Running")


def job_completions(job: Job) -> str:
    """ "1/3"; "1/1 of 3" if one success of three parallel pods is sufficient."""
    done, spec = job.status.succeeded, job.spec
    if spec.HasField("completions"):
        return f"{done}/{spec.completions}"
    return f"{done}/1 of {spec.parallelism}" if spec.parallelism > 1 else f"{done}/1"


def job_duration(job: Job, now: float) -> str:
    """From start to end, or until now; empty if it has not started."""
    if not is_set(job.status.startTime):
        return ""
    end = to_seconds(job.status.completionTime) if is_set(job.status.completionTime) else now
    return human_duration(end - to_seconds(job.status.startTime))


def cron_job_row(cron_job: CronJob, now: float) -> tuple[str, ...]:
    spec, status = cron_job.spec, cron_job.status
    job = spec.jobTemplate.spec
    return (
        cron_job.metadata.name,
        spec.schedule,
        spec.timeZone if spec.HasField("timeZone") else NONE,
        str(spec.suspend) if spec.HasField("suspend") else "<unset>",
        str(len(status.active)),
        format_age(status.lastScheduleTime, now) if is_set(status.lastScheduleTime) else NONE,
        format_age(cron_job.metadata.creationTimestamp, now),
        *wide_cells(job.template, job.selector),
    )


CRON_JOBS = Columns(
    headers=("NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE", "AGE"),
    wide=WIDE,
    row=cron_job_row,
)


def daemon_set_row(daemon_set: DaemonSet, now: float) -> tuple[str, ...]:
    spec, status = daemon_set.spec, daemon_set.status
    return (
        daemon_set.metadata.name,
        str(status.desiredNumberScheduled),
        str(status.currentNumberScheduled),
        str(status.numberReady),
        str(status.updatedNumberScheduled),
        str(status.numberAvailable),
        format_labels(spec.template.spec.nodeSelector) or NONE,
        format_age(daemon_set.metadata.creationTimestamp, now),
        *wide_cells(spec.template, spec.selector),
    )


DAEMON_SETS = Columns(
    headers=("NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE SELECTOR", "AGE"),
    wide=WIDE,
    row=daemon_set_row,
)


def disruption_budget_row(budget: PodDisruptionBudget, now: float) -> tuple[str, ...]:
    spec = budget.spec
    return (
        budget.metadata.name,
        str(int_or_string(spec.minAvailable)) if spec.HasField("minAvailable") else NOT_APPLICABLE,
        str(int_or_string(spec.maxUnavailable)) if spec.HasField("maxUnavailable") else NOT_APPLICABLE,
        str(budget.status.disruptionsAllowed),
        format_age(budget.metadata.creationTimestamp, now),
    )


POD_DISRUPTION_BUDGETS = Columns(
    headers=("NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS", "AGE"),
    wide=(),
    row=disruption_budget_row,
)
