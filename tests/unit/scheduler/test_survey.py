"""The survey says what the framework decides by."""

import numpy as np
import pytest
from hypothesis import given, settings

from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.explain.explain import plugin_scores, survey_nodes
from pinnace.scheduler.framework import CycleState
from tests.builders import NodeBuilder, PodBuilder
from tests.examples import examples
from tests.unit.scheduler.pods import cache_of, framework
from tests.unit.scheduler.test_agreement import clusters, pods

pytestmark = pytest.mark.slow

FRAMEWORK = framework()


@settings(max_examples=examples(40))
@given(clusters(), pods("new"))
def test_survey_does_not_change_decisions(cluster: tuple[list[NodeBuilder], list[PodBuilder]], wanted: PodBuilder) -> None:
    builders, placed = cluster
    nodes, pod = cache_of(*builders, placed=placed).nodes, PodInfo(wanted.build())
    filtered: CycleState = {}
    decided = FRAMEWORK.run_filters(filtered, pod, nodes)
    state: CycleState = {}
    surveyed = survey_nodes(FRAMEWORK, state, pod, nodes)
    feasible = decided.feasible
    assert surveyed.feasible.tolist() == feasible.tolist()
    if not feasible.any():
        assert surveyed.diagnosis.message == decided.message
        return
    total = FRAMEWORK.score(filtered, pod, nodes, feasible)
    result = sum(
        (weight * score for _, weight, score in plugin_scores(FRAMEWORK, state, pod, nodes, feasible)), np.zeros(len(nodes))
    )
    assert result[feasible].tolist() == total[feasible].tolist()
