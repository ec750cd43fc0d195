"""The Gymnasium environment: an agent's actions through the scheduler's own cycle."""

from pathlib import Path

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from pinnace.runtime.configuration import ConfigurationError  # noqa: E402
from pinnace.study.environment import ENVIRONMENT, SchedulingEnvironment  # noqa: E402

STUDY = """
profiles: profiles.yaml
seeds: [1]
traces:
- {name: day, format: csv, nodes: nodes.csv, tasks: tasks.csv}
"""
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: shared, plugins: {multiPoint: {enabled: [{name: GpuShare}]}}}]
"""
NODES = "name,cpu_milli,memory_mib,gpu,gpu_model\nn0,4000,8192,1,T4\nn1,8000,8192,0,\nn2,2000,8192,0,\n"


def environment(folder: Path, tasks: str, **options: object) -> SchedulingEnvironment:
    (folder / "study.yaml").write_text(STUDY)
    (folder / "profiles.yaml").write_text(PROFILES)
    (folder / "nodes.csv").write_text(NODES)
    (folder / "tasks.csv").write_text(tasks)
    return SchedulingEnvironment(folder / "study.yaml", **options)  # type: ignore[arg-type]


def play(env: SchedulingEnvironment, seed: int) -> tuple[list[int], list[float], dict[str, float]]:
    """Return actions, rewards and figures of an episode of random actions."""
    random = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    actions, rewards, done = [], [], False
    while not done:
        actions.append(int(random.choice(np.flatnonzero(info["action_mask"]))))
        _, reward, done, _, info = env.step(actions[-1])
        rewards.append(reward)
    return actions, rewards, info["figures"]


def test_environment_passes_the_checker_of_gymnasium() -> None:
    check_env(gymnasium.make(ENVIRONMENT).unwrapped, skip_render_check=True)


def test_equal_seeds_give_equal_episodes() -> None:
    env = SchedulingEnvironment()
    first, again, other = play(env, 3), play(env, 3), play(env, 4)
    assert first == again
    assert first != other


def test_rewards_add_up_to_the_metric() -> None:
    _, rewards, figures = play(SchedulingEnvironment(metric="allocated"), 1)
    assert sum(rewards) == pytest.approx(figures["allocated"])
    assert 50 < figures["allocated"] <= 100


def test_choice_of_the_profile_gives_the_result_of_the_profile() -> None:
    env = SchedulingEnvironment(profile="BestFit")
    env.reset(seed=2)
    done, total = False, 0.0
    while not done:
        assert env._queued is not None
        row = env._evaluator._full.evaluate(env._queued.info, {})
        assert isinstance(row, int)
        _, reward, done, _, _ = env.step(row)
        total += reward
    assert total == pytest.approx(env.play_profile(2))


def test_pod_is_placed_on_the_row_of_the_action(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli,arrival\na,1000,0\nb,1000,1\n")
    observation, info = env.reset(seed=0)
    assert info["task"] == "a"
    assert info["action_mask"].tolist() == [1, 1, 1]
    assert observation["nodes"][:, 0] == pytest.approx([0.5, 1.0, 0.25])
    assert observation["pod"][0] == pytest.approx(0.125)
    observation, _, done, _, info = env.step(2)
    assert (info["task"], done) == ("b", False)
    assert observation["nodes"][:, 0] == pytest.approx([0.5, 1.0, 0.125])


def test_pod_that_fits_nowhere_is_no_step(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli,arrival,duration\nhuge,9000,0,1\na,1000,1,5\n")
    _, info = env.reset(seed=0)
    assert info["task"] == "a"
    _, _, done, _, info = env.step(0)
    assert done
    assert info["figures"]["pending"] == 1


def test_filters_decide_where_a_pod_fits(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli,gpu,gpu_milli\na,100,1,500\n")
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 0, 0]
    assert env.action_masks().tolist() == [True, False, False]


def test_action_that_does_not_fit_counts_as_the_next_that_fits(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli,arrival\na,3000,0\nb,1000,1\n")
    env.reset(seed=0)
    observation, _, _, _, info = env.step(2)
    assert not info["valid"]
    assert observation["nodes"][0, 0] == pytest.approx(0.125)


def test_task_waits_until_another_ends(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli,arrival,duration\na,8000,0,100\nb,8000,1,100\n")
    env.reset(seed=0)
    _, _, done, _, info = env.step(1)
    assert not done
    assert (info["task"], info["time"]) == ("b", 100.0)


def test_preempting_pod_goes_to_its_nominated_node(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli,arrival,priority\na,8000,0,0\nb,8000,1,100\n")
    env.reset(seed=0)
    _, _, done, _, info = env.step(1)
    assert done, "the pod goes to the node of its victim, which then fits nowhere"
    assert (info["figures"]["evictions"], info["figures"]["pending"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "speed"}, "no metric 'speed'; there are demand, allocated"),
        ({"trace": "night"}, "no trace 'night'; there are day"),
        ({"profile": "fast"}, "no profile 'fast'; there are shared"),
    ],
)
def test_unknown_name_is_an_error_with_the_known_ones(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        environment(tmp_path, "name,cpu_milli\na,1\n", **options)


def test_step_after_the_end_is_an_error(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli\na,1000\n")
    env.reset(seed=0)
    assert env.step(0)[2]
    with pytest.raises(ValueError, match=r"reset\(\)"):
        env.step(0)


def test_action_out_of_range_is_an_error(tmp_path: Path) -> None:
    env = environment(tmp_path, "name,cpu_milli\na,1000\n")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="from 0 to 2"):
        env.step(3)
