"""The behavior of pods that stages define."""

from collections import Counter

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.kubelet.runtime.stages import SETS, Behaviour, Stages, load_stages, parse_stages
from tests.builders import make_pod

DEFAULT = Behaviour(start_seconds=9.0)


def stages(*specs: str) -> Stages:
    """Stages from specs in YAML's flow style, without the resourceRef."""
    head = "apiVersion: pinnace.io/v1alpha1\nkind: Stage\nspec: {resourceRef: {kind: Pod}, "
    return parse_stages("\n---\n".join(f"{head}{spec}}}" for spec in specs), "test.yaml")


def numbered(number: int) -> Pod:
    pod = make_pod("a").build()
    pod.metadata.uid = f"uid-{number}"
    return pod


@pytest.mark.parametrize(
    ("next_", "behaviour"),
    [
        ("{start: {}}", Behaviour(start_seconds=2.0)),
        ("{exit: {code: 3}}", Behaviour(start_seconds=9.0, run_seconds=2.0, exit_code=3)),
        ("{started: {}}", Behaviour(start_seconds=9.0, started_after_seconds=2.0)),
        ("{ready: {}}", Behaviour(start_seconds=9.0, ready_after_seconds=2.0)),
        ("{unready: {}}", Behaviour(start_seconds=9.0, unready_after_seconds=2.0)),
        ("{unhealthy: {}}", Behaviour(start_seconds=9.0, unhealthy_after_seconds=2.0)),
        ("{stop: {}}", Behaviour(start_seconds=9.0, stop_seconds=2.0)),
        ("{exit: never}", DEFAULT),
    ],
)
def test_next_sets_the_behaviour_after_the_delay(next_: str, behaviour: Behaviour) -> None:
    result = stages(f"delay: {{durationMilliseconds: 2000}}, next: {next_}")
    assert result.behaviour_of(make_pod("a").build(), DEFAULT) == behaviour


JOB = make_pod("job").label("app", "web").declare(mode="odd").build()
JOB.metadata.ownerReferences.add(kind="Job", name="j", uid="u")
PLAIN = make_pod("a").build()


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("{}", True),
        ("{matchLabels: {app: web}}", True),
        ("{matchLabels: {app: web, tier: back}}", False),
        ("{matchAnnotations: {pinnace.io/mode: odd}}", True),
        ("{matchAnnotations: {pinnace.io/mode: even}}", False),
        ("""{matchExpressions: [{key: '.metadata.labels["app"]', operator: In, values: [web, api]}]}""", True),
        ("""{matchExpressions: [{key: '.metadata.labels["app"]', operator: NotIn, values: [web]}]}""", False),
        ("""{matchExpressions: [{key: '.metadata.labels["tier"]', operator: NotIn, values: [web]}]}""", True),
        ("""{matchExpressions: [{key: '.metadata.annotations["pinnace.io/mode"]', operator: Exists}]}""", True),
        ("{matchExpressions: [{key: .spec.priorityClassName, operator: DoesNotExist}]}", True),
        ("{matchExpressions: [{key: .metadata.name, operator: In, values: [job]}]}", True),
        ("{matchLabels: {app: web}, matchExpressions: [{key: .metadata.name, operator: In, values: [other]}]}", False),
    ],
)
def test_selector_selects_pods(selector: str, selected: bool) -> None:
    result = stages(f"selector: {selector}, next: {{exit: {{}}}}").behaviour_of(JOB, DEFAULT)
    assert (result is not DEFAULT) == selected, "a pod without a matching stage has the default behavior"


def test_weights_choose_between_stages_of_one_kind() -> None:
    both = stages(
        "weight: 80, next: {exit: never}",
        "weight: 20, next: {exit: {code: 1}}",
        "weight: 0, next: {exit: {code: 2}}",
        "delay: {durationMilliseconds: 1000}, next: {start: {}}",
    )
    result = [both.behaviour_of(numbered(number), DEFAULT) for number in range(500)]
    codes = Counter(item.exit_code for item in result)
    assert set(codes) == {0, 1}
    assert 60 < codes[1] < 140
    assert {item.start_seconds for item in result} == {1.0}, "stages of other kinds apply in addition"


def test_stages_without_weights_are_equally_likely() -> None:
    both = stages("next: {exit: {code: 1}}", "next: {exit: {code: 2}}")
    codes = Counter(both.behaviour_of(numbered(number), DEFAULT).exit_code for number in range(200))
    assert min(codes[1], codes[2]) > 60


def test_jitter_is_bounded_and_stable_for_each_pod() -> None:
    result = stages("delay: {durationMilliseconds: 1000, jitterDurationMilliseconds: 3000}, next: {start: {}}")
    delays = [result.behaviour_of(numbered(number), DEFAULT).start_seconds for number in range(100)]
    assert all(1.0 <= delay <= 3.0 for delay in delays)
    assert max(delays) - min(delays) > 1.0
    assert delays == [result.behaviour_of(numbered(number), DEFAULT).start_seconds for number in range(100)]


@pytest.mark.parametrize("name", SETS)
def test_built_in_sets_can_be_loaded(name: str) -> None:
    result = load_stages(name)
    for number in range(50):
        result.behaviour_of(numbered(number), DEFAULT)


def exits(pod: Pod, name: str) -> set[int | None]:
    """The exit codes of such pods. None stands for a pod that runs on."""
    stages, result = load_stages(name), set[int | None]()
    for number in range(300):
        pod.metadata.uid = f"uid-{number}"
        behaviour = stages.behaviour_of(pod, Behaviour())
        result.add(None if behaviour.run_seconds is None else behaviour.exit_code)
    return result


def test_built_in_sets_end_pods_as_described() -> None:
    assert exits(PLAIN, "fast") == {None}
    assert exits(JOB, "fast") == {0}
    assert exits(PLAIN, "realistic") == {None}
    assert exits(JOB, "realistic") == {0, 1}
    assert exits(PLAIN, "chaos") == {None, 1, 137}
