"""PredictedEnd: tasks that probably end at the same time share a node, so that nodes become empty.

A ridge regression on the past of the trace predicts the logarithm of a task's duration from its requests and priority. The
score of a node falls with the time by which the task would prolong the use of the node: its own predicted end, minus the latest
predicted end of the pods that run there. The duration of a task that does not end counts as HORIZON.

Without a past, all predictions are equal, and the policy prefers the nodes with the youngest pods. On the traces of
examples/studies/lifetime.yaml this is as good: about half of the nodes that packing uses, with and without the regression.
Source: A. Hoerl and R. Kennard, Ridge Regression (Technometrics 1970).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_seconds
from pinnace.scheduler.framework import BoolArray, CycleState, FloatArray, Handle, NodeTable, PodInfo
from pinnace.scheduler.plugins.helper import check_names
from pinnace.study.trace import HIGH_PRIORITY, HOUR, Shape, Task, shape_of_pod

HORIZON = 7 * 24 * HOUR
"""The longest duration in seconds."""
MAX_KNOWN = 100_000
"""Maximum number of predictions that are kept."""
PENALTY = 1.0
"""The ridge: the weight of the squared coefficients beside the squared errors."""
SCALE = 4 * HOUR
"""A node whose use is prolonged by this many seconds has the score 100 / e."""


class DurationModel:
    """Predicts durations in seconds. The features are standardized."""

    def __init__(self) -> None:
        self._mean = self._deviation = np.zeros(0)
        self._weights = np.zeros(0)
        self._base = np.log(HOUR)

    def fit(self, tasks: Sequence[Task]) -> None:
        """Learn from tasks with their durations."""
        features = np.array([_features(task.shape, task.priority) for task in tasks])
        targets = np.log(np.clip([task.duration for task in tasks], 1.0, HORIZON))
        self._mean, self._deviation = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
        x = (features - self._mean) / self._deviation
        self._base = float(targets.mean())
        self._weights = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ (targets - self._base))

    def predict(self, shape: Shape, priority: int) -> float:
        """Return the predicted duration of a task."""
        if not len(self._weights):
            return HOUR
        x = (np.array(_features(shape, priority)) - self._mean) / self._deviation
        return float(np.exp(np.clip(self._base + x @ self._weights, 0.0, np.log(HORIZON))))


class PredictedEnd:
    name = "PredictedEnd"

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`learn: false` in `args` makes all predictions equal, to see what the predictions are worth."""
        check_names(args, ("learn",))
        self._learns = args.get("learn", True) is True
        self._pods = handle.index(PODS, lambda pod: str(pod.spec.nodeName))
        self._model = DurationModel()
        self._known: dict[str, float] = {}
        """Predicted durations of pods by UID."""
        self._now = 0.0
        """The time of the latest bind, in seconds."""
        self._generation: object = None
        self._versions = np.zeros(0, np.int64)
        self._ends: FloatArray = np.zeros(0)
        """The latest predicted end on each node, 0 without pods."""

    def learn(self, past: Iterable[Task]) -> None:
        """Fit the model to the tasks of the past."""
        if self._learns and (tasks := list(past)):
            self._model.fit(tasks)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        self._update(nodes)
        prolonged = np.maximum(self._now + self._duration(pod.raw) - np.maximum(self._ends, self._now), 0)
        scores: FloatArray = np.floor(100 * np.exp(-prolonged / SCALE))
        return scores

    def _update(self, nodes: NodeTable) -> None:
        """Compute the rows that have changed."""
        if nodes.generation != self._generation or len(nodes) != len(self._ends):
            self._generation, self._ends = nodes.generation, np.zeros(len(nodes))
            self._versions = np.full(len(nodes), -1, np.int64)
        changed = np.flatnonzero(self._versions != nodes.versions).tolist()
        for row in changed:
            self._ends[row] = max(map(self._end_of, self._pods.under(nodes.names[row]).values()), default=0.0)
        if changed:
            self._versions = nodes.versions.copy()

    def _end_of(self, pod: Pod) -> float:
        started = to_seconds(pod.status.startTime)
        self._now = max(self._now, started)
        return started + self._duration(pod)

    def _duration(self, pod: Pod) -> float:
        duration = self._known.get(pod.metadata.uid)
        if duration is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            duration = self._model.predict(shape_of_pod(pod), pod.spec.priority)
            self._known[pod.metadata.uid] = duration
        return duration


def _features(shape: Shape, priority: int) -> list[float]:
    return [
        np.log1p(shape.cpu),
        np.log1p(shape.memory),
        float(shape.gpus),
        shape.milli / 1000,
        float(bool(shape.models)),
        float(priority >= HIGH_PRIORITY),
    ]
