"""Does the leader go on with its work? Pure; times are monotonic seconds.

    an attempt ends:  placed, unschedulable ----------> it goes on
                      failed by a plugin, severely ---> it goes on, but not with that work
    a pod is bound, or found unschedulable -----------> the work goes on

A leader does not go on in two cases: it makes no attempt although pods wait (`STILL`); or every attempt ends in what no plugin
should do (`PluginError.severe`), from the second one on. An ordinary exception of a plugin is no such case: another leader
would meet it too, and pods are tried again after their backoff.

What follows is not decided here: pinnace/client/standby.py gives the election up when it lasts.
"""

from collections.abc import Mapping

STILL = 10.0
"""Seconds in which a leader makes an attempt, while pods are ready to be tried."""
SEVERE = 2
"""Attempts that end badly, one after the other, before it counts."""


class Progress:
    """Of one term at a time."""

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A term begins."""
        self.doing = "begins"
        """What the scheduling loop is at."""
        self._attempts = self._seen = 0
        self._tried = now
        self._allowance = 0.0
        self._severe = 0
        self._since = now
        self._problem = ""

    def tried(self) -> None:
        """An attempt has ended, however."""
        self._attempts += 1
        self._allowance = 0.0

    def worked(self) -> None:
        """A pod was bound, or no node can take it."""
        self._severe = 0

    def failed(self, problem: str, now: float) -> None:
        """An attempt ended in what no plugin should do."""
        if not self._severe:
            self._since = now
        self._severe += 1
        self._problem = problem

    def expect(self, doing: str, seconds: float) -> None:
        """The attempt that is being made may take so much longer: services outside are asked."""
        self.doing, self._allowance = doing, seconds

    def stuck(self, ready: bool, slow: Mapping[tuple[str, str], tuple[int, float]], now: float) -> str | None:
        """What keeps the leader from going on; None: nothing. To be asked often. `ready`: there are pods to be tried.
        `slow`: by (plugin, point), the number of pods about which it does not answer, and since how many seconds."""
        if not ready or self._attempts != self._seen:
            self._seen, self._tried = self._attempts, now
        if self._severe >= SEVERE:
            return f"each of {self._severe} attempts in {now - self._since:.0f} s has failed: {self._problem}"
        if (still := now - self._tried) >= STILL + self._allowance:
            named = [f'plugin "{plugin}" in {point} ({number} pods)' for (plugin, point), (number, _) in slow.items()]
            waits = f", for {', '.join(named)}" if named else ""
            return f"no pod has been tried for {still:.0f} s, although pods wait: the scheduling loop {self.doing}{waits}"
        return None
