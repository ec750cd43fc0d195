"""What is remembered of pods that are made from few templates: nothing large."""

from collections import Counter

import pytest

from pinnace.api.core_v1_pb2 import Container, Pod, PodSpec, Volume
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategies import pods
from pinnace.apiserver.registry.strategies.pods import PodStrategy
from pinnace.apiserver.registry.validation.pods import validate_new_spec
from tests.builders import make_pod


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was worked out, how often."""
    worked = Counter[str]()

    def judge(spec: PodSpec) -> list[Violation]:
        worked["judged"] += 1
        return validate_new_spec(spec)

    def default(self: PodStrategy, obj: Pod) -> None:
        worked["completed"] += 1
        set_defaults(self, obj)

    set_defaults = PodStrategy.set_defaults
    monkeypatch.setattr(pods, "validate_new_spec", judge)
    monkeypatch.setattr(PodStrategy, "set_defaults", default)
    return worked


def create(pod: Pod, times: int) -> None:
    strategy = PodStrategy()
    for _ in range(times):
        new = Pod.FromString(pod.SerializeToString())
        strategy.prepare_create(new)
        strategy.validate(new)


def test_equal_pods_are_looked_at_once(worked: Counter[str]) -> None:
    create(make_pod("a").req(cpu="1").new(), 3)
    assert worked == {"completed": 1, "judged": 1}


def test_template_that_grows_by_defaults_is_not_cached(worked: Counter[str]) -> None:
    pod = make_pod("a").new()
    pod.spec.containers.extend([Container()] * 3000)
    assert pod.spec.ByteSize() < 8192
    create(pod, 3)
    assert worked == {"completed": 3, "judged": 3}


def test_invalid_template_is_not_cached(worked: Counter[str]) -> None:
    pod = make_pod("a").new()
    pod.spec.volumes.extend([Volume()] * 100)
    create(pod, 3)
    assert worked["judged"] == 3
