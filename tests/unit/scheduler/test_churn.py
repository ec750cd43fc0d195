"""Random churn against an oracle (`churn`): a seed is a cluster's life. `make churn` tries more of them."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from pinnace.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from pinnace.scheduler.plugins.node_resources import NodeResourcesFit
from tests.unit.scheduler.churn import Churn

pytestmark = pytest.mark.slow

FIRST = int(os.environ.get("PINNACE_FIRST", "0"))
SEEDS = int(os.environ.get("PINNACE_SEEDS", "3"))
ENOUGH = 40
"""Seeds within which a planted bug is found."""


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_churn_keeps_all_invariants_and_pods(seed: int) -> None:
    churn = Churn(seed)
    problems = churn.play()
    story = "\n".join(churn.log[-60:])
    assert not problems, f"seed {seed}: {problems[0]}\n\n{story}\n\nreplay: make churn FIRST={seed} SEEDS=1"
    assert churn.decisions > 10


def never(*_: Any) -> bool:
    return False


def skip_the_last(original: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that passes the last node, whatever it is."""

    def filtered(self: Any, state: Any, pod: Any, nodes: Any) -> Any:
        result = original(self, state, pod, nodes)
        passed = result.passed.copy()
        passed[-1:] = True
        return type(result)(passed, result.explain)

    return filtered


BUGS = {
    "a pod that does not fit is not woken when it does": (NodeResourcesFit, "helps", never),
    "nor when it may be near, or away": (InterPodAffinity, "helps", never),
    "a node without room takes a pod": (NodeResourcesFit, "filter", skip_the_last(NodeResourcesFit.filter)),
    "those that are not wanted come": (InterPodAffinity, "filter", skip_the_last(InterPodAffinity.filter)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    assert any(Churn(seed).play() for seed in range(ENOUGH)), bug
