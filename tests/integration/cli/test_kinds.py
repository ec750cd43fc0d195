"""Every kind that the scheduler reads is a full citizen: applied, shown, described, selected, deleted."""

from pathlib import Path

from pinnace.api.resources import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STORAGE_CLASSES,
)
from pinnace.client.client import Client
from tests.integration.cli.commands import Commands

KINDS = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, CSI_NODES, SERVICES, POD_DISRUPTION_BUDGETS)
VOLUMES = (Path(__file__).parents[3] / "examples/volumes.yaml").read_text()
DRIVERS = """
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: node-1}
spec:
  drivers:
  - {name: disks.example.com, nodeID: i-1, allocatable: {count: 3}}
"""


async def test_the_life_of_each_kind(pinnace: Commands) -> None:
    applied = await pinnace("apply", "-f", "-", stdin=VOLUMES + DRIVERS)
    assert applied.code == 0, applied.err
    assert applied.lines == [
        "storageclass.storage.k8s.io/disks-by-hand created",
        "persistentvolume/disk-of-node-1 created",
        "persistentvolumeclaim/data created",
        "pod/database created",
        "service/database created",
        "poddisruptionbudget.policy/database created",
        "csinode.storage.k8s.io/node-1 created",
    ]
    again = await pinnace("apply", "-f", "-", stdin=VOLUMES + DRIVERS)
    assert [line.rpartition(" ")[2] for line in again.lines] == ["unchanged"] * 7

    shown = await pinnace("get", "pv,pvc,sc,csinodes,svc,pdb", "-o", "name")
    assert len(shown.lines) == len(KINDS)
    tables = (await pinnace("get", "pv,pvc,sc,csinodes,svc,pdb")).out
    assert "persistentvolume/disk-of-node-1" in tables and "WaitForFirstConsumer" in tables

    written = await pinnace("get", "pvc", "data", "-o", "yaml")
    assert (await pinnace("apply", "-f", "-", "--dry-run", "server", stdin=written.out)).code == 0
    described = await pinnace("describe", "pvc/data")
    assert described.lines[0].split() == ["Name:", "data"]

    (wrong,) = (await pinnace("apply", "-f", "-", stdin=VOLUMES.replace("5Gi", "6Gi"))).errors[:1]
    assert "spec is immutable after creation except resources.requests" in wrong

    deleted = await pinnace("delete", "-f", "-", stdin=VOLUMES + DRIVERS)
    assert deleted.code == 0, deleted.err
    assert not (await pinnace("get", "pv,pvc,sc,csinodes,svc,pdb", "-o", "name")).lines


async def test_status_is_written_apart(pinnace: Commands, client: Client) -> None:
    assert (await pinnace("apply", "-f", "-", stdin=VOLUMES)).code == 0
    budgets = client.of(POD_DISRUPTION_BUDGETS)
    budget = await budgets.get("database", "default")
    budget.status.disruptionsAllowed = 2
    await budgets.update(budget)
    assert (await budgets.get("database", "default")).status.disruptionsAllowed == 0
    await budgets.update_status(budget)
    stored = await budgets.get("database", "default")
    assert (stored.status.disruptionsAllowed, stored.metadata.generation) == (2, 1)
