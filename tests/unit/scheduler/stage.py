"""A whole scheduler in virtual time, before a FakeApi: what takes it minutes takes a test milliseconds.

def test_it() -> None:
    stage = Stage()

    async def story() -> None:
        stage.api.put(PODS, make_pod("a").build())
        await asyncio.sleep(1.0)
        assert stage.node_of("a")

    stage.play(story())
"""

from collections.abc import Coroutine
from typing import Any
from unittest.mock import patch

from pinnace.api.resources import PODS
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.scheduler import Scheduler
from tests.simulation.loop import SimLoop
from tests.simulation.process import Process
from tests.unit.scheduler.fake_api import FakeApi, FakeCandidate

MAX_TIME = 3600.0


class Stage:
    """The first of the replicas leads from the beginning."""

    def __init__(self, configuration: Configuration | None = None, *, seed: int = 0, replicas: int = 1) -> None:
        self.loop = SimLoop(seed, max_time=MAX_TIME)
        self.api = FakeApi()
        self._configuration = configuration or Configuration(seed=seed)
        self.schedulers: list[Scheduler] = []
        self._replicas = replicas

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        """Raises what the story raises, or what killed a scheduler."""
        with patch("pinnace.client.standby.LeaderElector", FakeCandidate):
            self.loop.run(self._play(story))
        assert not self.loop.failures, self.loop.failures

    def again(self) -> "Stage":
        """Another one like it, from the beginning."""
        return Stage(self._configuration, replicas=self._replicas)

    def candidate(self, replica: int = 0) -> FakeCandidate:
        candidate: Any = self.schedulers[replica]._standby._elector
        assert isinstance(candidate, FakeCandidate)
        return candidate

    def node_of(self, name: str, namespace: str = "default") -> str:
        """Empty: the pod is not bound."""
        node: str = self.api.all(PODS)[f"{namespace}/{name}"].spec.nodeName
        return node

    def bound(self) -> list[str]:
        """The names of the pods that are."""
        return sorted(pod.metadata.name for pod in self.api.all(PODS).values() if pod.spec.nodeName)

    async def _play(self, story: Coroutine[Any, Any, None]) -> None:
        for number in range(self._replicas):
            process = Process(f"s{number}", self.loop)
            client: Any = self.api
            self.schedulers.append(Scheduler(client, process.name, self._configuration, clock=process.clock))
            process.start(self.schedulers[-1].run)
        self.candidate().elect()
        await story
