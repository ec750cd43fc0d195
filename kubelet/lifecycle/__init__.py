"""The life of one pod on its node, as a pure function that moves it one step.

                        accept                     init containers done, all main ones started
    bound pod --------------------> Pending ----------------------------------------------> Running
        |                              |                                                     |   ^ |
        | refuse                       | every container has exited for good                 |   | | a container exits and
        v                              v                                                     v   +-+ its restartPolicy
      Failed                       Succeeded (all with code 0), Failed (else) <--------------'       restarts it

    deletionTimestamp or an exceeded deadline, in any phase: stop the containers -> Succeeded or Failed (-> Remove)

Guarantees:
* A phase changes only along TRANSITIONS; Succeeded and Failed are final, and reached only when no container runs.
* `advance_pod` is level-triggered: it decides by the desired state, the pod's state and the observed containers. Repeating a
  step requests the same actions, and the next step makes up for a missed one.
* An init container starts only after those before it have succeeded or, for sidecars, started; the main ones after all of them.
* Decisions use monotonic time only. Setting the wall clock changes timestamps and nothing else.
* A pod that is being stopped starts no container, and is removed only when none of its containers runs.

Not in this package: what a container does (kubelet.runtime), whether the node has room (kubelet.node), the status message
(kubelet.status), and anything that blocks.

    plan        the spec, prepared once, and the types: PodPhase, PodState, PodStep, actions
    advance     the pod: accept, refuse, adopt; start and stop order, phase, conditions
    container   a container: hooks, probes, restarts with back-off, exit

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from pinnace.kubelet.lifecycle.advance import (
    accept_pod,
    adopt_pod_state,
    advance_pod,
    evict_pod_state,
    reject_pod,
    was_accepted,
)
from pinnace.kubelet.lifecycle.container import format_duration, restart_backoff, restart_for_resize, should_restart
from pinnace.kubelet.lifecycle.plan import (
    TRANSITIONS,
    Action,
    ConditionState,
    ContainerPlan,
    ContainerRecord,
    DesiredState,
    PodPhase,
    PodPlan,
    PodState,
    PodStep,
    PodTermination,
    RecordEvent,
    RemovePod,
    StartCall,
    StartContainer,
    StopContainer,
    build_pod_plan,
)

__all__ = [
    "TRANSITIONS",
    "Action",
    "ConditionState",
    "ContainerPlan",
    "ContainerRecord",
    "DesiredState",
    "PodPhase",
    "PodPlan",
    "PodState",
    "PodStep",
    "PodTermination",
    "RecordEvent",
    "RemovePod",
    "StartCall",
    "StartContainer",
    "StopContainer",
    "accept_pod",
    "adopt_pod_state",
    "advance_pod",
    "build_pod_plan",
    "evict_pod_state",
    "format_duration",
    "reject_pod",
    "restart_backoff",
    "restart_for_resize",
    "should_restart",
    "was_accepted",
]
