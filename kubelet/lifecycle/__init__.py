"""The life of one pod on its node, as a pure function that moves it exactly one step.

                        accept                     init containers done, all main ones started
    bound pod --------------------> Pending ----------------------------------------------> Running
        |                              |                                                     |   ^ |
        | refuse                       | every container has exited for good                 |   | | a container exits and
        v                              v                                                     v   +-+ its restartPolicy
      Failed                       Succeeded (all with code 0), Failed (else) <--------------'       brings it back

    deletionTimestamp or a deadline that has passed, in any phase: stop the containers -> Succeeded or Failed (-> Remove)

Guarantees:
* A phase changes only along TRANSITIONS; Succeeded and Failed are final, and reached only when no container runs.
* `advance` decides by what is wanted, the pod's state and the containers as they are seen now (level-triggered): a step that
  is taken twice asks for the same things, and one that was missed is made up for by the next.
* An init container starts only when those before it have succeeded or, sidecars, have started; the main ones after all of them.
* Only monotonic time decides. A clock that is set changes nothing but the stamps that people read.
* A pod that is being stopped starts nothing any more, and is removed only when none of its containers runs.

Not here: what a container does (kubelet.runtime), whether the node has room (kubelet.virtualnode), the status message
(kubelet.status), and anything that waits.

    plan        what the spec says of all this, prepared once
    state       the words: Phase, PodState, Step, actions
    advance     the pod: order of starting and stopping, phase, conditions
    container   a container: hooks, probes, restarts, its end
    probes      when to probe, and what the outcomes come to
    backoff     who comes back, and after how long
    admission   accept, refuse, adopt

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from kubelet.lifecycle.admission import accept, accepted, adopt, refuse
from kubelet.lifecycle.advance import advance, evict
from kubelet.lifecycle.backoff import comes_back, delay, in_words
from kubelet.lifecycle.container import restart
from kubelet.lifecycle.plan import ContainerPlan, PodPlan, plan_of
from kubelet.lifecycle.state import (
    TRANSITIONS,
    Action,
    Begin,
    Care,
    Ending,
    Fact,
    Note,
    Phase,
    PodState,
    Remove,
    Start,
    Step,
    Stop,
    Wanted,
)

__all__ = [
    "TRANSITIONS",
    "Action",
    "Begin",
    "Care",
    "ContainerPlan",
    "Ending",
    "Fact",
    "Note",
    "Phase",
    "PodPlan",
    "PodState",
    "Remove",
    "Start",
    "Step",
    "Stop",
    "Wanted",
    "accept",
    "accepted",
    "adopt",
    "advance",
    "comes_back",
    "delay",
    "evict",
    "in_words",
    "plan_of",
    "refuse",
    "restart",
]
