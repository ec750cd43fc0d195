"""Three gateways are rolled under load. A client that resumes its watch at another gateway loses, repeats and reorders nothing,
and acknowledged writes survive.

Six rolls here; PINNACE_ROLLS=20 makes it twenty (`make soak`)."""

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinnace.cluster.spec import ClusterSpec
from pinnace.history.records import CallRecord, WatchMessage
from pinnace.verification.chaos.clients import HistoryJournal
from pinnace.verification.chaos.engine import build_run_record
from pinnace.verification.chaos.load import ChaosLoad
from pinnace.verification.chaos.stage import JOURNAL, read_run_history, start_chaos_cluster
from pinnace.verification.check.check import check_history

pytestmark = pytest.mark.chaos

ROLLS = int(os.environ.get("PINNACE_ROLLS", "6"))
KILLS = 2
SETTLE = 30.0
SPEC = ClusterSpec(nodes=10, kubelets=1, schedulers=1, apiservers=2, gateways=3)


class Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


@pytest.mark.timeout(180 + 30 * ROLLS)
@pytest.mark.parametrize("shares_port", [False, True])
async def test_watches_lose_nothing_while_gateways_restart(tmp_path: Path, shares_port: bool) -> None:
    spec = replace(SPEC, gateways_share_port=shares_port)
    with HistoryJournal(tmp_path / JOURNAL) as journal:
        journal.write(build_run_record(time.time(), 1, "gateways are rolled", SETTLE))
        async with start_chaos_cluster(spec, tmp_path, Silent()) as on:
            loading = ChaosLoad(on.cluster.config, journal, on.nodes, seed=1, rate=90.0, gateways=on.gateways)
            async with on.bystander, loading as load:
                assert load.gateways is not None
                began = time.monotonic()
                for number in range(ROLLS + KILLS):
                    name = f"gateway-{number % SPEC.gateways}"
                    before = load.gateways.calls["ok"]
                    on.under_test.end_process(name, signal.SIGTERM if number < ROLLS else signal.SIGKILL)
                    await on.under_test.restart_stopped_process(name)
                    assert await on.under_test.wait_until_ready(name)
                    async with asyncio.timeout(10):
                        while load.gateways.calls["ok"] == before:  # noqa: ASYNC110 (the load is another task)
                            await asyncio.sleep(0.01)
                print(f"{ROLLS} rolls and {KILLS} kills in {time.monotonic() - began:.1f} s: {dict(load.gateways.calls)},",
                      f"{load.gateways.streams} watches")  # fmt: skip
                assert load.gateways.streams > ROLLS / SPEC.gateways
                settled = await load.stop_and_settle(within=SETTLE)
                assert settled.lacking == ()
            await on.recorder.wait_for_revision(settled.revision, SETTLE)
            assert on.under_test.unstoppable_processes == []
    records = list(read_run_history(tmp_path))
    told = [record for record in records if isinstance(record, WatchMessage) and record.client == "watcher-gateways"]
    resumed = [item for item in told if item.kind == "began" and item.revision]
    addresses = 1 if shares_port else SPEC.gateways
    assert len({item.server for item in resumed}) == addresses and len(resumed) >= ROLLS / SPEC.gateways
    assert sum(item.kind in ("added", "deleted") for item in told) > 100
    created = [
        record
        for record in records
        if isinstance(record, CallRecord) and record.client.startswith("gateway-") and record.verb == "create"
    ]
    assert len([item for item in created if item.outcome == "ok"]) > 50
    result = check_history(records)
    assert [violation.text for verdict in result.verdicts for violation in verdict.violations] == []
    examined = {verdict.name: verdict.examined for verdict in result.verdicts}
    assert examined["I5"] and examined["I8"]
