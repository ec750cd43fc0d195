"""Nobody can stall a gateway for others: a user reads and writes pods at a steady rate while another caller attacks.

    quiet phase  ->  attack  ->  the attacker ends
    calls of the user: all of them succeed in both phases, in time

The attacker uses one CPU. PINNACE_DOOR_JSON=FILE writes all figures to a file, and `pytest -s` shows them as a table.
"""

from pathlib import Path

import pytest

from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.verification.chaos.attacks.table import ATTACKS, Attack
from tests.robustness.door.measure import Measured, measure

pytestmark = pytest.mark.door

P99, P99_TIMES = 50.0, 3.0
"""The maximum p99 of the user's calls during an attack: milliseconds, or times that of the quiet phase; the larger one."""
RATE = 0.9
"""The minimum rate of the user's successful calls during an attack, as a part of that in the quiet phase."""
GAP = 250.0
"""The maximum period without an answer to the user, in milliseconds."""
MEMORY = 150.0
"""The maximum growth of the memory of the gateway, and of the API server, in MB."""


@pytest.mark.timeout(90)
@pytest.mark.parametrize("attack", ATTACKS.values())
async def test_user_does_not_notice_attack(
    cluster: Cluster, client: Client, attack: Attack, tmp_path: Path, figures: dict[str, Measured]
) -> None:
    measured = figures[attack.name] = await measure(cluster, client, attack, tmp_path)
    assert problems(attack, measured) == []


def problems(attack: Attack, measured: Measured) -> list[str]:
    """Return the bounds that an attack exceeds, in words."""
    quiet, attacked, outcomes = measured.quiet, measured.attacked, measured.outcomes
    limit = max(P99, P99_TIMES * quiet.p99)
    result = {
        f"calls of the user failed before the attack: {quiet.failures}": bool(quiet.failures),
        f"calls of the user failed: {attacked.failures}": bool(attacked.failures),
        f"{attacked.rate:.0f} calls/s succeeded, {quiet.rate:.0f} before": attacked.rate < RATE * quiet.rate,
        f"p99 is {attacked.p99:.0f} ms, limit {limit:.0f} ms": attacked.p99 > limit,
        f"no call was answered for {attacked.longest_gap:.0f} ms": attacked.longest_gap > GAP,
        f"the gateway grew by {measured.gateway_mb:.0f} MB": measured.gateway_mb > MEMORY,
        f"the API server grew by {measured.apiserver_mb:.0f} MB": measured.apiserver_mb > MEMORY,
        f"the attack did not take place: {outcomes}": bool(attack.must)
        and sum(outcomes.get(outcome, 0) for outcome in attack.must) < attack.count,
        f"the attacker got wrong answers: {outcomes}": not set(outcomes) <= {*attack.must, *attack.may},
    }
    return [problem for problem, occurred in result.items() if occurred]
