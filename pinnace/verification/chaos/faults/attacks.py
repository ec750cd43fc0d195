"""Faults in which other callers attack a gateway (pinnace/verification/chaos/attacks)."""

import random
from collections.abc import Sequence

from pinnace.client.errors import ApiError
from pinnace.cluster import processes
from pinnace.runtime import procfs
from pinnace.verification.chaos import ChaosError
from pinnace.verification.chaos.attacks.attacker import Attacker
from pinnace.verification.chaos.attacks.callers import create_attackers
from pinnace.verification.chaos.attacks.table import ATTACKS, Attack
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import MakeFault, MeasuringFault

LIMIT = 60.0
"""Seconds after which an attacker ends, in case the process that started it has died."""
NICE = 5
"""The niceness of an attacker. An attacker represents another machine, so it must not use the cluster's CPU time."""
GROWTH = 150.0
"""The maximum growth of a gateway's memory in MB."""
BODIES = (
    "refused-json",
    "refused-yaml",
    "refused-bodies-200",
    "stalled-bodies-200",
    "hostile-patches",
    "gzip-bombs",
    "alias-bombs",
)
READS = ("yaml-lists", "future-lists-300", "unread-lists", "unread-pipeline", "openapi")
CALLERS = ("random-tokens", "refusals", "exec-flood", "huge-headers")
CONNECTIONS = ("idle-connections", "stalled-headers", "no-handshakes")


class GatewayAttack(MeasuringFault):
    """An attack on a gateway. Its other user gets answers in time (L5). The memory of the gateway stays within limits."""

    def __init__(self, under_test: ClusterUnderTest, target: str, attack: Attack) -> None:
        super().__init__()
        self._under_test = under_test
        self._target = target
        self._attack = attack
        self._attacker: Attacker | None = None
        self._memory = 0.0
        self.details = f"{target}: {attack.what}"

    async def inject(self) -> None:
        cluster = self._under_test.cluster
        record = cluster.state.find_process(self._target)
        process = processes.find_running(record)
        if process is None:
            raise NotPossible(f"{self._target} does not run")
        try:
            folder = await create_attackers(cluster, self._under_test.client)
            self._memory = procfs.reset_peaks([process])
            self._attacker = await Attacker(record.plan.address, folder, self._attack, LIMIT, nice=NICE).start_process()
            self._attacker.begin_attack()
        except (ApiError, ChaosError, OSError) as error:
            raise NotPossible(str(error)) from error

    async def undo(self) -> None:
        """Raises ChaosError."""
        attacker, self._attacker = self._attacker, None
        if attacker is None:
            return
        try:
            if process := processes.find_running(self._under_test.cluster.state.find_process(self._target)):
                growth = procfs.peak_memory([process]) - self._memory
                self.read(self._target, "MB by which its memory grew", round(growth, 1), most=GROWTH)
            outcomes = await attacker.end_attack()
        finally:
            attacker.kill()
        shown = sum(outcomes[outcome] for outcome in self._attack.must)
        self.read(self._target, "outcomes that show the attack", shown, least=float(bool(self._attack.must)))


def build_attack_maker(names: Sequence[str]) -> MakeFault:
    """Return the maker of a fault that is one of these attacks, at random."""

    def make(under_test: ClusterUnderTest, target: str, rng: random.Random) -> GatewayAttack:
        return GatewayAttack(under_test, target, ATTACKS[rng.choice(names)])

    return make
