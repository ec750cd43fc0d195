"""A Gymnasium environment on the scheduler's own decisions: an agent selects the node, and the scheduler does all else.

    environment = gymnasium.make("pinnace.study.environment:pinnace/Scheduling-v0", metric="allocated")
    observation, info = environment.reset(seed=1)
    while True:
        action = agent(observation, info["action_mask"])
        observation, reward, terminated, truncated, info = environment.step(action)

One step is one decision: queue, backoff, filters, preemption and reservation of GPUs are the scheduler's, in virtual time. A
pod that fits on no node is no step, because there is nothing to select. An episode is one trace. Equal seeds give equal
episodes.

    observation  {"nodes": [node, FEATURES], "pod": [POD_FEATURES]}, float32 from 0 to 1
    action       a row. A row on which the pod does not fit counts as the next row on which it fits; info["valid"] is then False
    reward       the growth of the metric since the last step, or its fall with maximize=False. The rewards of an episode add up
                 to the metric at its end
    info         "action_mask": [node], 1 where the pod fits; "task"; "time" in seconds; "valid"; at the end "figures"

`action_masks()` is what maskable algorithms call. Source: the Env interface of Gymnasium 1.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pinnace.runtime.configuration import ConfigurationError
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.framework import BoolArray, CycleState, FloatArray, PodInfo
from pinnace.scheduler.framework.results import Diagnosis
from pinnace.scheduler.node_selector import FullEvaluator, find_nominated_conflicts
from pinnace.scheduler.plugins.gpu_share import GPU_MILLI, WHOLE
from pinnace.scheduler.queue import QueuedPod
from pinnace.study.plan import Study, load_metrics, read_study
from pinnace.study.recording import METRICS, ClusterView, Metric, Recorder
from pinnace.study.simulation import Simulation
from pinnace.study.trace import Trace

DEFAULT_STUDY = Path(__file__).parent / "environment.yaml"
ENVIRONMENT = "pinnace/Scheduling-v0"
"""The name for `gymnasium.make`, after this module is imported."""
FEATURES = ("free cpu", "free memory", "free gpu", "largest free share", "cpu", "memory", "gpu")
"""The columns of a node: amounts divided by the largest node's; the largest free share of one GPU."""
POD_FEATURES = ("cpu", "memory", "gpu", "share")
"""The requests of a pod, divided by the amounts of the largest node; the share of each GPU."""
_RESOURCES = ("cpu", "memory", GPU_MILLI)

T = TypeVar("T")
Observation = dict[str, NDArray[np.float32]]


class _AgentEvaluator:
    """Runs the scheduler's filters, and selects the row that the agent has chosen."""

    def __init__(self, full: FullEvaluator) -> None:
        self._full = full
        self._state: CycleState = {}
        self._diagnosis: Diagnosis | None = None
        self.row: int | None = None

    def find_feasible(self, pod: PodInfo) -> BoolArray:
        """Return where the agent may place the pod: nowhere if it fits on no node, or on its nominated node."""
        self.row, self._state = None, {}
        self._diagnosis = self._full.run_filters(pod, self._state)
        feasible, cache = self._diagnosis.feasible.copy(), self._full.cache
        if not len(cache.nodes.nominated):
            return feasible
        nominated = cache.nodes.row(cache.nodes.nominated.node_of(pod.uid))
        if nominated is not None and feasible[nominated]:
            return np.zeros_like(feasible)
        for row in np.flatnonzero(feasible).tolist():
            feasible[row] = not find_nominated_conflicts(pod, row, cache, self._full.framework)
        return feasible

    def evaluate(self, pod: PodInfo, state: CycleState) -> int | Diagnosis:
        """Return the agent's row. Without one, decide as the scheduler does."""
        assert self._diagnosis is not None  # find_feasible runs before each attempt
        state.update(self._state)
        return self._full.select_feasible(pod, state, self._diagnosis) if self.row is None else self.row


class SchedulingEnvironment(gymnasium.Env[Observation, np.int64]):
    """One trace and profile of a study. The profile's filters decide where a pod fits; its scores are not used."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Env declares it

    def __init__(
        self,
        study: str | Path = DEFAULT_STUDY,
        *,
        trace: str = "",
        profile: str = "",
        metric: str = "allocated",
        maximize: bool = True,
        folder: str | Path | None = None,
    ) -> None:
        """`trace` and `profile` are names in the study file, by default the first. `folder` has the files of the trace.

        `metric` is a metric of every study (pinnace.study.recording.METRICS), or one that the file names.
        Raise ConfigurationError or TraceError.
        """
        plan = read_study(Path(study), folder=None if folder is None else Path(folder))
        self._metrics = load_metrics(plan.metrics)
        self._metric: Metric = _choose({**METRICS, **self._metrics}, metric, "metric")
        self._plan = _choose({item.name: item for item in plan.traces}, trace, "trace")
        self._configuration = _one_profile(plan, profile)
        self._sign = 1.0 if maximize else -1.0
        self._trace = self._plan.load()
        self._seed = 0
        count = len(self._trace.machines)
        self.observation_space: gymnasium.Space[Any] = spaces.Dict(
            {
                "nodes": spaces.Box(0.0, 1.0, (count, len(FEATURES)), np.float32),
                "pod": spaces.Box(0.0, 1.0, (len(POD_FEATURES),), np.float32),
            }
        )
        self.action_space = spaces.Discrete(count)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Start an episode. The seed chooses the order of an inflated trace, and what the scheduler chooses at random.

        Without a seed, it comes from the environment's own generator.
        """
        super().reset(seed=seed)
        self._seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._start(self._plan.trace_for_seed(self._trace, self._seed))
        self._advance()
        return self._observe(), self._info(valid=True)

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the pod on a row, and go on to the next decision. Raise ValueError if the action is no row."""
        row, count = int(action), len(self._feasible)
        if not 0 <= row < count:
            raise ValueError(f"expected an action from 0 to {count - 1}, got {row}")
        if self._queued is None:
            raise ValueError("the episode has ended: call reset()")
        valid = bool(self._feasible[row])
        if not valid:
            rows = np.flatnonzero(self._feasible)
            row = int(rows[np.searchsorted(rows, row) % len(rows)])
        self._evaluator.row = row
        before = self._value
        self._advance()
        return self._observe(), self._sign * (self._value - before), self._queued is None, False, self._info(valid=valid)

    def action_masks(self) -> BoolArray:
        """Return where the pod fits."""
        return self._feasible

    def play_profile(self, seed: int) -> float:
        """Return the metric at the end of an episode in which the profile's own scores select the nodes."""
        trace = self._plan.trace_for_seed(self._trace, seed)
        recorder = self._recorder(trace)
        simulation = Simulation(self._configuration, trace, recorder, seed=seed)
        simulation.run()
        return float(self._metric(ClusterView(simulation, recorder)))

    def _start(self, trace: Trace) -> None:
        recorder = self._recorder(trace)
        self._simulation = simulation = Simulation(self._configuration, trace, recorder, seed=self._seed)
        self._view = ClusterView(simulation, recorder)
        self._evaluator = _AgentEvaluator(FullEvaluator(simulation.cache, simulation.framework, self._seed))
        simulation.selector.evaluator = self._evaluator
        self._attempts: Iterator[QueuedPod] = simulation.attempts()
        self._queued: QueuedPod | None = None
        self._value = 0.0
        nodes = simulation.cache.nodes
        amounts = [nodes.allocatable(resource) for resource in _RESOURCES]
        self._largest = [max(int(amount.max(initial=0)), 1) for amount in amounts]
        self._table = np.zeros((len(nodes), len(FEATURES)), np.float32)
        for column, (amount, largest) in enumerate(zip(amounts, self._largest, strict=True)):
            self._table[:, len(FEATURES) - len(_RESOURCES) + column] = amount / largest
        self._has_devices = bool(amounts[-1].any())
        self._feasible = np.zeros(len(nodes), np.bool_)

    def _recorder(self, trace: Trace) -> Recorder:
        """Return a recorder that takes no samples."""
        return Recorder(trace, self._metrics, inflated=False, interval=float("inf"))

    def _advance(self) -> None:
        """Go on to the next pod that the agent may place."""
        for queued in self._attempts:
            feasible = self._evaluator.find_feasible(queued.info)
            if feasible.any():
                self._queued, self._feasible = queued, feasible
                break
        else:
            self._queued, self._feasible = None, np.zeros_like(self._feasible)
        self._value = float(self._metric(self._view))

    def _observe(self) -> Observation:
        nodes, table = self._simulation.cache.nodes, self._table
        for column, (resource, largest) in enumerate(zip(_RESOURCES, self._largest, strict=True)):
            table[:, column] = np.maximum(nodes.free(resource), 0) / largest
        if self._has_devices:
            table[:, 3] = self._view.devices.max(axis=1) / WHOLE
        return {"nodes": table.copy(), "pod": self._observe_pod()}

    def _observe_pod(self) -> NDArray[np.float32]:
        if self._queued is None:
            return np.zeros(len(POD_FEATURES), np.float32)
        requests = dict(self._queued.info.requests.amounts)
        amounts: list[float] = [
            requests.get(resource, 0) / most for resource, most in zip(_RESOURCES, self._largest, strict=True)
        ]
        shape = self._simulation.task_of(self._queued.info.uid).shape
        return np.minimum(np.array([*amounts, shape.milli / WHOLE], np.float32), 1)

    def _info(self, *, valid: bool) -> dict[str, Any]:
        info: dict[str, Any] = {"action_mask": self._feasible.astype(np.int8), "valid": valid, "time": self._simulation.now}
        if self._queued is not None:
            return info | {"task": self._queued.info.uid}
        return info | {"task": "", "figures": {name: float(metric(self._view)) for name, metric in METRICS.items()}}


def _choose(items: dict[str, T], name: str, what: str) -> T:
    """Return an item by name, or the first one if there is no name."""
    if name and name not in items:
        raise ConfigurationError(f"{what}: no {what} {name!r}; there are {', '.join(items)}")
    return items[name] if name else next(iter(items.values()))


def _one_profile(study: Study, name: str) -> Configuration:
    return study.configuration_of(_choose({profile: profile for profile in study.profiles}, name, "profile"))


def linear_scores(observation: Observation, weights: FloatArray) -> FloatArray:
    """Return a score for each node: features of the node after the placement, times `weights`.

    The features are the free CPU, memory and GPU that remain, the largest free share before, and for tasks with GPUs the same
    four again: eight weights.
    """
    nodes, pod = observation["nodes"], observation["pod"]
    features = np.column_stack([nodes[:, :3] - pod[:3], nodes[:, 3]])
    return np.asarray(features @ (weights[:4] + (weights[4:] if pod[3] else 0)), np.float64)


gymnasium.register(ENVIRONMENT, entry_point=f"{__name__}:SchedulingEnvironment")
