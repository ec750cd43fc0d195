"""API servers that are rolled one after the other, under load: nobody notices.

Four rolls here; PINNACE_ROLLS=20 makes it twenty (`make soak`)."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ClusterSpec
from tests.integration.witnesses import PATIENCE, compare, loads, witnesses

pytestmark = pytest.mark.chaos

ROLLS = int(os.environ.get("PINNACE_ROLLS", "4"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(ClusterSpec(nodes=3, schedulers=2, apiservers=2, data_dir=tmp_path / "cluster"))
    await cluster.up()
    yield cluster
    await cluster.down()


async def gone(cluster: Cluster, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while cluster.pid(name):  # noqa: ASYNC110 (another process: there is no event to wait for)
            await asyncio.sleep(0.01)


@pytest.mark.timeout(60 + 10 * ROLLS)
async def test_rolling_restart_of_api_servers_fails_no_call(cluster: Cluster) -> None:
    async with cluster.client() as client, witnesses(cluster, 4) as result, loads(cluster, 3) as load:
        before = await client.elections.get("scheduler")
        started = time.monotonic()
        for roll in range(ROLLS):
            name = f"apiserver-{roll % 2}"
            calls = [item.calls for item in load]
            cluster.kill(name, signal.SIGTERM)
            await gone(cluster, name)
            await cluster.start(name)
            assert all(each.calls > had for each, had in zip(load, calls, strict=True)), "the load stood still"
        for item in load:
            await item.stop()
        after = await client.elections.get("scheduler")
        history = await compare(cluster, result)
        print(f"{ROLLS} rolls in {time.monotonic() - started:.1f} s: {sum(item.calls for item in load)} calls,",
              f"{len(history.pods)} events, {len(result)} witnesses, token {before.token}")  # fmt: skip
        assert [error for item in load for error in item.errors] == []
        assert (after.holder, after.token) == (before.holder, before.token)
        assert history.tokens == [before.token]
