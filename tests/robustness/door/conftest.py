"""One cluster for all attacks, with 5,000 pods, and the table of all measurements."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.links import HelperProcess
from pinnace.cluster.spec import ClusterSpec
from pinnace.verification.bench.load import CreatedPods
from pinnace.verification.chaos.attacks.table import Attack
from tests.robustness.door.measure import Measured

PODS = 5_000
JSON = "PINNACE_DOOR_JSON"
"""Environment variable with a file for the measurements."""
START_TIMEOUT = 60.0
COLUMNS = "{:<20}{:>7}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}{:>7}  {}"
HEADS = (
    "attack",
    "quiet/s",
    "under/s",
    "p50 ms",
    "under",
    "p99 ms",
    "under",
    "gap ms",
    "MB gw",
    "MB api",
    "failures; outcomes",
)


@pytest.fixture(scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """etcd, an API server and a gateway."""
    folder = tmp_path_factory.mktemp("door") / "cluster"
    cluster = Cluster(ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=1, gateways=1, data_dir=folder))
    async with HelperProcess("pinnace.verification.chaos.reaper", "--data-dir", f"{folder}"):
        await cluster.up(timeout=START_TIMEOUT)
        try:
            async with cluster.client() as client:
                await CreatedPods("listed-").create_pods([client], PODS, batch=500)
            yield cluster
        finally:
            await cluster.take_down_at_exit()


@pytest.fixture(scope="session")
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with cluster.client() as client:
        yield client


@pytest.fixture(scope="session")
def figures() -> Iterator[dict[str, Measured]]:
    """The measurements by name of the attack. They are printed at the end, and written to the file in PINNACE_DOOR_JSON."""
    results: dict[str, Measured] = {}
    yield results
    print("", COLUMNS.format(*HEADS), *(row(name, measured) for name, measured in results.items()), sep="\n")
    if path := os.environ.get(JSON):
        Path(path).write_text(json.dumps({name: asdict(measured) for name, measured in results.items()}, indent=1) + "\n")


def row(name: str, measured: Measured) -> str:
    quiet, under = measured.quiet, measured.attacked
    return COLUMNS.format(
        name, quiet.rate, under.rate, quiet.p50, under.p50, quiet.p99, under.p99, under.longest_gap,
        round(measured.gateway_mb), round(measured.apiserver_mb), f"{under.failures or ''}; {measured.outcomes}",
    )  # fmt: skip


def pytest_make_parametrize_id(val: object) -> str | None:
    return val.name if isinstance(val, Attack) else None
