"""Persistent volumes and claims."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import PersistentVolume
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from pinnace.api.scalars import to_seconds, to_time
from pinnace.api.wellknown import CLASS_ANNOTATION, OLD_ZONE_LABEL, ZONE_LABEL
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.auth.matrix import serving
from tests.unit.registry.objects import Data, changed, created, status_changed
from tests.unit.registry.test_creating import asked, call

ALONE = "may not use ReadWriteOncePod with other access modes"
MODES = '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'
VOLUME: Data = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
CLAIM: Data = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
FIXED_AFFINITY = "field is immutable, except for updating from beta label to GA"
SHOWN = '{"MatchExpressions":[{"Key":"zone","Operator":"In","Values":["b"]}],"MatchFields":null}'


def in_zone(key: str, zone: str) -> Data:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}]}}


ZONES = in_zone("zone", "a")


def volume(**spec: Any) -> Any:
    return from_dict(PERSISTENT_VOLUMES, {"metadata": {"name": "v"}, "spec": VOLUME | spec})


def claim(**spec: Any) -> Any:
    return from_dict(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "c", "namespace": "default"}, "spec": CLAIM | spec})


class TestPersistentVolumes:
    async def test_when_the_phase_changed(self) -> None:
        """As in Kubernetes: who releases volumes that nobody wants looks at how long they have been so."""
        async with serving() as assembly:
            made = PersistentVolume.FromString(
                await call(assembly, "PersistentVolumes/Create", asked(assembly, "PersistentVolumes/Create", volume()))
            )
            first = to_seconds(made.status.lastPhaseTransitionTime)
            assert first == to_seconds(made.metadata.creationTimestamp)
            request = asked(assembly, "PersistentVolumes/UpdateStatus", made)

            async def updated(phase: str, time: float | None = None) -> float:
                request.object.status.Clear()
                request.object.status.phase, request.object.metadata.resourceVersion = phase, ""
                if time is not None:
                    request.object.status.lastPhaseTransitionTime.CopyFrom(to_time(time))
                changed = PersistentVolume.FromString(await call(assembly, "PersistentVolumes/UpdateStatus", request))
                return to_seconds(changed.status.lastPhaseTransitionTime)

            assert await updated("Available") == first
            assert await updated("Bound", 7) == 7
            assert await updated("Bound") == 7
            assert await updated("Bound", 8) == 8
            assert await updated("Released", 8) >= first
            assert await updated("Failed") >= first

    def test_defaults(self) -> None:
        obj = volume()
        obj.status.phase = "Bound"
        assert created(PERSISTENT_VOLUMES, obj) == []
        assert (obj.spec.persistentVolumeReclaimPolicy, obj.spec.volumeMode) == ("Retain", "Filesystem")
        assert (obj.status.phase, obj.spec.persistentVolumeSource.hostPath.HasField("type")) == ("Available", True)

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"accessModes": []}, ["spec.accessModes: Required value"]),
            ({"accessModes": ["x"]}, [f'spec.accessModes: Unsupported value: "x": supported values: {MODES}']),
            ({"accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}, [f"spec.accessModes: Forbidden: {ALONE}"]),
            (
                {"capacity": {}},
                ["spec.capacity: Required value", 'spec.capacity: Unsupported value: null: supported values: "storage"'],
            ),
            (
                {"capacity": {"storage": "1", "cpu": "1"}},
                ['spec.capacity: Unsupported value: {"cpu":"1","storage":"1"}: supported values: "storage"'],
            ),
            ({"capacity": {"storage": "0"}}, ['spec.capacity[storage]: Invalid value: "0": must be greater than zero']),
            (
                {"persistentVolumeReclaimPolicy": "x"},
                ['spec.persistentVolumeReclaimPolicy: Unsupported value: "x": supported values: "Delete", "Recycle", "Retain"'],
            ),
            ({"volumeMode": "x"}, ['spec.volumeMode: Unsupported value: "x": supported values: "Block", "Filesystem"']),
            ({"hostPath": None}, ["spec: Required value: must specify a volume type"]),
            ({"nfs": {"server": "s", "path": "/"}}, ["spec.nfs: Forbidden: may not specify more than 1 volume type"]),
            (
                {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"},
                ["spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"],
            ),
            ({"nodeAffinity": ZONES}, []),
            (
                {"volumeAttributesClassName": ""},
                [
                    "spec.volumeAttributesClassName: Required value: an empty string is disallowed",
                    "spec.csi: Required value: has to be specified when using volumeAttributesClassName",
                ],
            ),
            ({"nodeAffinity": {}}, ["spec.nodeAffinity.required: Required value: must specify required node constraints"]),
            (
                {"nodeAffinity": {"required": {}}},
                ["spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"],
            ),
            ({"hostPath": None, "local": {"path": "/d"}, "nodeAffinity": ZONES}, []),
            (
                {"hostPath": None, "local": {"path": "/d"}},
                ["spec.nodeAffinity: Required value: Local volume requires node affinity"],
            ),
            ({"hostPath": None, "csi": {"driver": "d"}}, ["spec.csi.volumeHandle: Required value"]),
            (
                {"hostPath": None, "gcePersistentDisk": {"pdName": "d", "partition": 256}},
                ["spec.gcePersistentDisk.partition: Invalid value: 256: must be between 0 and 255, inclusive"],
            ),
        ],
    )
    def test_spec(self, spec: Data, expected: list[str]) -> None:
        assert created(PERSISTENT_VOLUMES, volume(**spec)) == expected

    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ({}, {"claimRef": {"name": "c", "namespace": "default"}, "nodeAffinity": ZONES}, []),
            (
                {},
                {"hostPath": {"path": "/other"}},
                [
                    "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
                ],
            ),
            ({}, {"volumeMode": "Block"}, ['volumeMode: Invalid value: "Block": field is immutable']),
            ({"nodeAffinity": ZONES}, {}, [f"nodeAffinity: Invalid value: null: {FIXED_AFFINITY}"]),
            (
                {"nodeAffinity": ZONES},
                {"nodeAffinity": in_zone("zone", "b")},
                [f'nodeAffinity: Invalid value: {{"Required":{{"NodeSelectorTerms":[{SHOWN}]}}}}: {FIXED_AFFINITY}'],
            ),
            ({"nodeAffinity": in_zone(OLD_ZONE_LABEL, "a")}, {"nodeAffinity": in_zone(ZONE_LABEL, "a")}, []),
        ],
    )
    def test_update(self, before: Data, after: Data, expected: list[str]) -> None:
        old = volume(**before)
        assert created(PERSISTENT_VOLUMES, old) == []
        assert changed(PERSISTENT_VOLUMES, volume(**after), old) == expected

    def test_status(self) -> None:
        old, new = volume(), volume()
        new.status.phase, new.spec.storageClassName = "Bound", "other"
        assert status_changed(PERSISTENT_VOLUMES, new, old) == []
        assert new.spec == old.spec
        new.status.phase = "x"
        (violation,) = status_changed(PERSISTENT_VOLUMES, new, old)
        assert violation.startswith('status.phase: Unsupported value: "x": supported values: "Pending", "Available"')


class TestClaims:
    def test_whatever_it_asks_for_is_a_quantity(self) -> None:
        """Quotas read all of it. Found by the fuzzer."""
        obj = claim()
        obj.spec.resources.requests["x"].string = "-Infinity"
        (violation,) = created(PERSISTENT_VOLUME_CLAIMS, obj)
        assert violation.startswith('spec.resources.requests[x]: Invalid value: "-Infinity": "-Infinity" is not a quantity')

    def test_fractional_bytes_are_warned_about(self) -> None:
        strategy, little = STRATEGIES[PERSISTENT_VOLUME_CLAIMS.plural], {"requests": {"storage": "500m"}}
        assert created(PERSISTENT_VOLUME_CLAIMS, claim(resources=little)) == []
        assert list(strategy.warnings(claim(resources=little))) == [
            'spec.resources.requests[storage]: "500m" is in thousandths of a byte; did you mean "500M"?'
        ]
        assert not list(strategy.warnings(claim()))

    def test_defaults(self) -> None:
        obj = claim()
        assert created(PERSISTENT_VOLUME_CLAIMS, obj) == []
        assert (obj.spec.volumeMode, obj.status.phase) == ("Filesystem", "Pending")

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"accessModes": []}, ["spec.accessModes: Required value: at least 1 access mode is required"]),
            ({"accessModes": ["x"]}, [f'spec.accessModes: Unsupported value: "x": supported values: {MODES}']),
            ({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}, [f"spec.accessModes: Forbidden: {ALONE}"]),
            ({"resources": {}}, ["spec.resources[storage]: Required value"]),
            (
                {"resources": {"requests": {"storage": "-1"}}},
                ['spec.resources[storage]: Invalid value: "-1": must be greater than zero'],
            ),
            (
                {"resources": {"requests": {"storage": "1", "x": "-1"}}},
                ['spec.resources.requests[x]: Invalid value: "-1": must be greater than or equal to 0'],
            ),
            ({"volumeMode": "x"}, ['spec.volumeMode: Unsupported value: "x": supported values: "Block", "Filesystem"']),
            ({"storageClassName": ""}, []),
            (
                {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
                [
                    "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or "
                    "'NotIn'"
                ],
            ),
        ],
    )
    def test_spec(self, spec: Data, expected: list[str]) -> None:
        assert created(PERSISTENT_VOLUME_CLAIMS, claim(**spec)) == expected

    FIXED = (
        "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName "
        "for bound claims"
    )

    @pytest.mark.parametrize(
        ("bound", "spec", "expected"),
        [
            (False, {}, []),
            (False, {"volumeName": "v"}, []),
            (False, {"storageClassName": "slow"}, [FIXED]),
            (False, {"resources": {"requests": {"storage": "2Gi"}}}, [FIXED]),
            (True, {"volumeName": "v", "resources": {"requests": {"storage": "2Gi"}}}, []),
            (True, {"volumeName": "w"}, [FIXED]),
            (
                True,
                {"volumeName": "v", "resources": {"requests": {"storage": "1Mi"}}},
                ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
            ),
        ],
    )
    def test_update(self, bound: bool, spec: Data, expected: list[str]) -> None:
        old = claim(**({"volumeName": "v"} if bound else {}))
        assert created(PERSISTENT_VOLUME_CLAIMS, old) == []
        if bound:
            old.status.phase = "Bound"
            old.status.capacity["storage"].string = "1Gi"
        assert changed(PERSISTENT_VOLUME_CLAIMS, claim(**spec), old) == expected

    @pytest.mark.parametrize(
        ("before", "annotation", "expected"),
        [
            ({}, "", []),
            ({}, "fast", []),
            ({}, "slow", [FIXED]),
            ({"volumeName": "v"}, "", [FIXED]),
            ({"storageClassName": ""}, "", [FIXED]),
        ],
    )
    def test_class_of_a_claim_may_be_set_once(self, before: Data, annotation: str, expected: list[str]) -> None:
        old = claim(**before)
        if "storageClassName" not in before:
            old.spec.ClearField("storageClassName")
        if annotation:
            old.metadata.annotations[CLASS_ANNOTATION] = annotation
        assert created(PERSISTENT_VOLUME_CLAIMS, old) == []
        new = claim(**before | {"storageClassName": "fast"})
        if annotation:
            new.metadata.annotations[CLASS_ANNOTATION] = annotation
        assert changed(PERSISTENT_VOLUME_CLAIMS, new, old) == expected

    @pytest.mark.parametrize(
        ("before", "after", "allowed"),
        [
            (("slow", "fast"), ("slow", "fast"), True),
            (("slow", "fast"), ("grows", "fast"), False),
            (("slow", "fast"), (None, "fast"), False),
            ((None, "fast"), ("grows", "fast"), False),
            (("slow", None), ("grows", None), False),
            (("slow", None), (None, None), False),
            (("slow", None), (None, "slow"), True),
            (("slow", None), ("slow", "slow"), True),
            (("slow", None), ("grows", "slow"), False),
            (("slow", None), (None, "grows"), False),
            (("", None), (None, ""), True),
            (("", None), (None, None), True),  # as in Kubernetes, which compares the values
        ],
    )
    def test_class_of_the_annotation_stays_or_moves_into_the_field(
        self, before: tuple[str | None, str | None], after: tuple[str | None, str | None], allowed: bool
    ) -> None:
        """Also of a claim that has a volume."""
        old, new = (claim(volumeName="v") for _ in range(2))
        for obj, (annotation, field) in ((old, before), (new, after)):
            obj.spec.ClearField("storageClassName")
            if field is not None:
                obj.spec.storageClassName = field
            if annotation is not None:
                obj.metadata.annotations[CLASS_ANNOTATION] = annotation
        assert created(PERSISTENT_VOLUME_CLAIMS, old) == []
        old.status.phase = "Bound"
        result = changed(PERSISTENT_VOLUME_CLAIMS, new, old)
        immutable = f'metadata.annotations.{CLASS_ANNOTATION}: Invalid value: "{after[0] or ""}": field is immutable'
        assert result == [] if allowed else immutable in result

    def test_status(self) -> None:
        old, new = claim(), claim(volumeName="other")
        new.status.phase = "Bound"
        new.status.capacity["storage"].string = "1Gi"
        assert status_changed(PERSISTENT_VOLUME_CLAIMS, new, old) == []
        assert new.spec == old.spec
        new.status.phase = "x"
        assert status_changed(PERSISTENT_VOLUME_CLAIMS, new, old) == [
            'status.phase: Unsupported value: "x": supported values: "Pending", "Bound", "Lost"'
        ]

    @pytest.mark.parametrize("field", ["capacity", "allocatedResources"])
    def test_capacity_of_a_claim_is_a_quantity(self, field: str) -> None:
        new = claim()
        new.status.phase = "Bound"
        getattr(new.status, field)["storage"].string = "much"
        (problem,) = status_changed(PERSISTENT_VOLUME_CLAIMS, new, claim())
        assert problem.startswith(f"status.{field}[storage]: ")


@pytest.mark.parametrize(
    ("resource", "make", "field"),
    [
        (PERSISTENT_VOLUMES, volume, "storageClassName"),
        (PERSISTENT_VOLUME_CLAIMS, claim, "storageClassName"),
        (PERSISTENT_VOLUME_CLAIMS, claim, "volumeAttributesClassName"),
    ],
)
def test_class_of_a_volume_has_the_name_of_one(resource: Resource[Any], make: Callable[..., Any], field: str) -> None:
    assert created(resource, make(**{field: "gold"})) == created(resource, make(**{field: ""})) == []
    (result,) = created(resource, make(**{field: "Gold!"}))
    assert result.startswith(f'spec.{field}: Invalid value: "Gold!": ')
