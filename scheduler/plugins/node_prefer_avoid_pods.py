"""NodePreferAvoidPods: a node can name controllers, in an annotation, whose pods should rather go elsewhere.

Only pods of ReplicaSets and ReplicationControllers are avoided. Kubernetes has removed it in favour of taints; with the weight
that it had there, 10000, it outweighs all other scores. It scores only where a configuration enables it.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodepreferavoidpods/node_prefer_avoid_pods.go (release-1.22)
"""

import json
from functools import lru_cache

import numpy as np

from scheduler.framework import MAX_SCORE, SKIP, BoolArray, CycleState, FloatArray, NodeTable, PodInfo, Sees, Status

ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_KINDS = ("ReplicaSet", "ReplicationController")
_CONTROLLER = "NodePreferAvoidPods.controller"


class NodePreferAvoidPods:
    name = "NodePreferAvoidPods"
    score_sees = Sees.NODES

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        owners = pod.raw.metadata.ownerReferences
        controllers = [(owner.kind, owner.uid) for owner in owners if owner.controller and owner.kind in _KINDS]
        if not controllers or nodes.annotation(ANNOTATION).uniform:
            return SKIP
        state[_CONTROLLER] = controllers[0]
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        controller = state[_CONTROLLER]

        def score(annotation: str | None) -> float:
            return 0 if annotation is not None and controller in avoided(annotation) else MAX_SCORE

        return nodes.annotation(ANNOTATION).map(score, np.float64)


@lru_cache(maxsize=1024)
def avoided(annotation: str) -> frozenset[tuple[str, str]]:
    """The (kind, uid) of the controllers that an annotation names. One that cannot be read names none."""
    try:
        controllers = [each["podSignature"]["podController"] for each in json.loads(annotation)["preferAvoidPods"]]
        return frozenset((str(each["kind"]), str(each["uid"])) for each in controllers)
    except (ValueError, LookupError, TypeError):
        return frozenset()
