"""The survey says what the framework decides by."""

import numpy as np
from hypothesis import given, settings

from scheduler.cache.pod_info import PodInfo
from scheduler.explain.survey import scores, survey
from scheduler.framework import CycleState, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from tests.builders import NodeBuilder, PodBuilder
from tests.unit.scheduler.pods import cache_of, framework
from tests.unit.scheduler.test_agreement import clusters, pods

FRAMEWORK = framework()


@settings(max_examples=100)
@given(clusters(), pods("new"))
def test_nothing_is_decided_otherwise(cluster: tuple[list[NodeBuilder], list[PodBuilder]], wanted: PodBuilder) -> None:
    builders, placed = cluster
    nodes, pod = cache_of(*builders, placed=placed).nodes, PodInfo(wanted.build())
    decided = FRAMEWORK.filter({}, pod, nodes)
    state: CycleState = {}
    surveyed = survey(FRAMEWORK, state, pod, nodes)
    if isinstance(decided, Diagnosis):
        assert not surveyed.feasible.any() and surveyed.message() == decided.message()
        return
    assert surveyed.feasible.tolist() == decided.tolist()
    total = FRAMEWORK.score(_filtered(pod, nodes), pod, nodes, decided)
    found = sum((weight * score for _, weight, score in scores(FRAMEWORK, state, pod, nodes, decided)), np.zeros(len(nodes)))
    assert found[decided].tolist() == total[decided].tolist()


def _filtered(pod: PodInfo, nodes: NodeTable) -> CycleState:
    state: CycleState = {}
    FRAMEWORK.filter(state, pod, nodes)
    return state
