"""Every kind is a full citizen: applied, shown, described, selected, deleted."""

import json
from pathlib import Path

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import (
    CLUSTER_ROLES,
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
EXAMPLES = Path(__file__).parents[3] / "examples"
VOLUMES = (EXAMPLES / "volumes.yaml").read_text()
RBAC = (EXAMPLES / "rbac.yaml").read_text()
QUOTA = (EXAMPLES / "quota.yaml").read_text()
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-a\n---\n"
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
        "pod/ledger created",
        "service/ledger created",
        "poddisruptionbudget.policy/ledger created",
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
    budget = await budgets.get("ledger", "default")
    budget.status.disruptionsAllowed = 2
    await budgets.update(budget)
    assert (await budgets.get("ledger", "default")).status.disruptionsAllowed == 0
    await budgets.update_status(budget)
    stored = await budgets.get("ledger", "default")
    assert (stored.status.disruptionsAllowed, stored.metadata.generation) == (2, 1)


POD = """
apiVersion: v1
kind: Pod
metadata: {{name: web-{number}, namespace: team-a}}
spec: {{containers: [{{name: app, image: example.com/app:1}}]}}
"""
OURS = "!kubernetes.io/bootstrapping"
"""Not the roles that every cluster has."""


async def test_the_life_of_roles_and_quotas(pinnace: Commands) -> None:
    both = f"{RBAC}---\n{QUOTA}"
    applied = await pinnace("apply", "-f", "-", stdin=both)
    assert applied.code == 0, applied.err
    assert applied.lines == [
        "namespace/team-a created",
        "clusterrole.rbac.authorization.k8s.io/example:node-viewer created",
        "role.rbac.authorization.k8s.io/pod-keeper created",
        "resourcequota/all-pods created",
        "limitrange/containers created",
        "rolebinding.rbac.authorization.k8s.io/pod-keepers created",
        "clusterrolebinding.rbac.authorization.k8s.io/example:node-viewers created",
    ]
    again = await pinnace("apply", "-f", "-", stdin=both)
    assert [line.rpartition(" ")[2] for line in again.lines] == ["unchanged"] * 7

    kinds = "roles,clusterroles,rolebindings,clusterrolebindings,quota,limits"
    assert len((await pinnace("get", kinds, "-A", "-o", "name", "-l", OURS)).lines) == 6
    tables = (await pinnace("get", kinds, "-A")).out
    assert "Role/pod-keeper" in tables and "ClusterRole/example:node-viewer" in tables
    described = await pinnace("describe", "role/pod-keeper")
    assert ["pods", "[]", "[]", "[get", "list", "watch", "create", "update", "delete]"] in map(str.split, described.lines)

    (wrong,) = (
        await pinnace("apply", "-f", "-", stdin=RBAC.replace("  kind: Role\n  name: pod-keeper\n", "  kind: Role\n  name: x\n"))
    ).errors[:1]
    assert "cannot change roleRef" in wrong

    deleted = await pinnace("delete", "-f", "-", stdin=both.replace(NAMESPACE, ""))
    assert deleted.code == 0, deleted.err
    assert not (await pinnace("get", kinds, "-A", "-o", "name", "-l", OURS)).lines


@pytest.mark.parametrize("name", ["system:node", "Ada, (b)=c\\!", "x" * 253])
async def test_a_role_of_any_name(pinnace: Commands, name: str) -> None:
    """Such names are no words of selectors, in which the command line speaks of them to the server."""
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    role = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind, "metadata": {"name": name}, "rules": [rule]}
    full = f"clusterrole.rbac.authorization.k8s.io/{name}"
    assert (await pinnace("apply", "-f", "-", stdin=json.dumps(role))).lines == [f"{full} created"]
    assert (await pinnace("apply", "-f", "-", stdin=json.dumps(role))).lines == [f"{full} unchanged"]
    assert (await pinnace("get", "clusterrole", name, "-o", "name")).lines == [full]
    assert (await pinnace("describe", full)).lines[0].split(maxsplit=1) == ["Name:", name]
    assert (await pinnace("events", "--for", full)).code == 0
    assert (await pinnace("label", full, "tier=front")).lines == [f"{full} labeled"]
    deleted = await pinnace("delete", full)
    assert (deleted.code, deleted.lines) == (0, [f'clusterrole.rbac.authorization.k8s.io "{name}" deleted'])


async def test_lists_of_long_names_have_pages(client: Client) -> None:
    """The name at which a page ends is a part of the token of the next one."""
    roles = client.of(CLUSTER_ROLES)
    names = [letter * 253 for letter in "äöü"] + ["\U0001f680" * 253]
    for name in names:
        await roles.create(from_dict(CLUSTER_ROLES, {"metadata": {"name": name}}))
    listed = await roles.list(page_size=1)
    assert [role.metadata.name for role in listed.items][-len(names) :] == names


async def test_a_quota_shows_what_is_used_and_refuses_what_is_more(pinnace: Commands) -> None:
    assert (await pinnace("apply", "-f", "-", stdin=QUOTA)).code == 0
    pods = "---\n".join(POD.format(number=number) for number in range(3))
    assert (await pinnace("apply", "-f", "-", stdin=pods)).code == 0
    shown = await pinnace("get", "quota", "-n", "team-a")
    assert shown.lines[1].split()[:3] == ["all-pods", "pods:", "3/10,"]
    assert (await pinnace("apply", "-f", "-", stdin=QUOTA)).lines[1] == "resourcequota/all-pods unchanged"
    assert ["requests.cpu", "750m", "4"] in map(str.split, (await pinnace("describe", "quota", "-n", "team-a")).lines)
    more = await pinnace("apply", "-f", "-", stdin="---\n".join(POD.format(number=number) for number in range(3, 12)))
    assert [line.rpartition(" ")[2] for line in more.lines] == ["created"] * 7
    assert "exceeded quota: all-pods, requested: pods=1, used: pods=10, limited: pods=10" in "".join(more.errors)
