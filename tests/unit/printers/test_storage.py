"""The tables of volumes, claims, classes, services and budgets."""

from typing import Any

from pinnace.api.codec import from_dict
from pinnace.api.resources import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from pinnace.api.wellknown import CLASS_ANNOTATION
from pinnace.printers import COLUMNS

NOW = 10_000.0
META = {"name": "a", "creationTimestamp": "1970-01-01T02:46:35Z"}


def cells(resource: Resource[Any], data: dict[str, Any]) -> list[str]:
    """The cells of one row, including the wide ones."""
    return list(COLUMNS[resource.plural].row(from_dict(resource, {"metadata": META} | data), NOW))


def test_volume_row() -> None:
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": "c"},
        "storageClassName": "fast",
        "volumeMode": "Block",
    }
    shown = cells(PERSISTENT_VOLUMES, {"spec": spec, "status": {"phase": "Bound"}})
    assert shown == ["a", "5Gi", "RWO,RWX", "Retain", "Bound", "default/c", "fast", "<unset>", "", "5s", "Block"]


def test_claim_row_shows_the_bound_volume() -> None:
    spec = {"volumeName": "v", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
    status = {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOncePod"]}
    shown = cells(PERSISTENT_VOLUME_CLAIMS, {"spec": spec, "status": status})
    assert shown == ["a", "Bound", "v", "5Gi", "RWOP", "fast", "<unset>", "5s", "<unset>"]
    meta = META | {"annotations": {CLASS_ANNOTATION: "old"}}
    waiting = cells(PERSISTENT_VOLUME_CLAIMS, {"metadata": meta, "status": {"phase": "Pending"}})
    assert waiting == ["a", "Pending", "", "", "", "old", "<unset>", "5s", "<unset>"]


def test_terminating_volume_is_shown() -> None:
    meta = {"name": "a", "deletionTimestamp": "1970-01-01T02:46:35Z"}
    assert cells(PERSISTENT_VOLUME_CLAIMS, {"metadata": meta, "status": {"phase": "Bound"}})[1] == "Terminating"


def test_default_class_is_marked() -> None:
    data = {"provisioner": "example.com/disks", "allowVolumeExpansion": True, "reclaimPolicy": "Retain"}
    assert cells(STORAGE_CLASSES, data) == ["a", "example.com/disks", "Retain", "Immediate", "true", "5s"]
    meta = META | {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    assert cells(STORAGE_CLASSES, {"metadata": meta} | data)[0] == "a (default)"


def test_csi_node_row() -> None:
    assert cells(CSI_NODES, {"spec": {"drivers": [{"name": "d", "nodeID": "i"}]}}) == ["a", "1", "5s"]


def test_service_row() -> None:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]
    spec: dict[str, Any] = {"type": "NodePort", "ports": ports, "selector": {"app": "web"}, "clusterIP": "10.0.0.1"}
    assert cells(SERVICES, {"spec": spec}) == ["a", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP", "5s", "app=web"]
    assert cells(SERVICES, {"spec": spec | {"type": "LoadBalancer"}})[3] == "<pending>"
    balanced = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "lb"}]}}
    assert cells(SERVICES, {"spec": spec | {"type": "LoadBalancer"}, "status": balanced})[3] == "1.2.3.4,lb"
    assert cells(SERVICES, {"spec": {"type": "ExternalName", "externalName": "db"}})[3] == "db"


def test_disruption_budget_row() -> None:
    shown = cells(POD_DISRUPTION_BUDGETS, {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}})
    assert shown == ["a", "50%", "N/A", "2", "5s"]
    assert cells(POD_DISRUPTION_BUDGETS, {"spec": {"maxUnavailable": 1}}) == ["a", "N/A", "1", "0", "5s"]
