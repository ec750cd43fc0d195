"""Stateful sets and controller revisions: defaults, violations with Kubernetes' messages, and forbidden changes."""

from collections.abc import Callable

import pytest

from pinnace.api.apps_v1_pb2 import ControllerRevision, StatefulSet
from pinnace.api.codec import from_dict
from pinnace.api.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from pinnace.api.scalars import STRING
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategies.statefulsets import ControllerRevisionStrategy, StatefulSetStrategy

STRATEGY = StatefulSetStrategy(STATEFUL_SETS)
Change = Callable[[StatefulSet], object]


def make(*changes: Change) -> StatefulSet:
    labels = {"app": "web"}
    mount = {"name": "data", "mountPath": "/data"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    obj = from_dict(
        STATEFUL_SETS,
        {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "serviceName": "web",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "i:1", "volumeMounts": [mount]}]},
                },
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            },
        },
    )
    for change in changes:
        change(obj)
    STRATEGY.prepare_create(obj)
    return obj


def violations(*changes: Change) -> list[tuple[str, str]]:
    return [(violation.field, violation.message) for violation in STRATEGY.validate(make(*changes))]


def test_registered_strategy_is_that_of_stateful_sets() -> None:
    assert isinstance(STRATEGIES[STATEFUL_SETS.plural], StatefulSetStrategy)


def test_set_that_mounts_its_claim_templates_is_valid() -> None:
    assert violations() == []


def test_defaults() -> None:
    spec = make().spec
    assert (spec.replicas, spec.revisionHistoryLimit, spec.podManagementPolicy) == (1, 10, "OrderedReady")
    assert (spec.updateStrategy.type, spec.updateStrategy.rollingUpdate.HasField("partition")) == ("RollingUpdate", True)
    retention = spec.persistentVolumeClaimRetentionPolicy
    assert (retention.whenDeleted, retention.whenScaled) == ("Retain", "Retain")
    (claim,) = spec.volumeClaimTemplates
    assert (claim.spec.volumeMode, claim.status.phase) == ("Filesystem", "Pending")


def test_on_delete_gets_no_rolling_update() -> None:
    obj = make(lambda obj: setattr(obj.spec.updateStrategy, "type", "OnDelete"))
    assert not obj.spec.updateStrategy.HasField("rollingUpdate")


def max_unavailable(text: str) -> Change:
    def change(obj: StatefulSet) -> None:
        bound = obj.spec.updateStrategy.rollingUpdate.maxUnavailable
        bound.type, bound.strVal = STRING, text

    return change


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (
            lambda obj: setattr(obj.spec, "podManagementPolicy", "Both"),
            "spec.podManagementPolicy",
            "Invalid value: \"Both\": must be 'OrderedReady' or 'Parallel'",
        ),
        (
            lambda obj: setattr(obj.spec.updateStrategy, "type", "Never"),
            "spec.updateStrategy",
            'Invalid value: {"Type":"Never","RollingUpdate":null}: must be \'RollingUpdate\' or \'OnDelete\'',
        ),
        (
            lambda obj: setattr(obj.spec.updateStrategy.rollingUpdate, "partition", -1),
            "spec.updateStrategy.rollingUpdate.partition",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (max_unavailable("0%"), "spec.updateStrategy.rollingUpdate.maxUnavailable", 'Invalid value: "0%": cannot be 0'),
        (
            max_unavailable("101%"),
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            'Invalid value: "101%": must not be greater than 100%',
        ),
        (
            lambda obj: setattr(obj.spec.persistentVolumeClaimRetentionPolicy, "whenScaled", "Keep"),
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
            'Unsupported value: "Keep": supported values: "Retain", "Delete"',
        ),
        (
            lambda obj: setattr(obj.spec.ordinals, "start", -1),
            "spec.ordinals.start",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            lambda obj: setattr(obj.spec.template.spec, "restartPolicy", "Never"),
            "spec.template.spec.restartPolicy",
            'Unsupported value: "Never": supported values: "Always"',
        ),
        (
            lambda obj: setattr(obj.spec.template.spec, "activeDeadlineSeconds", 5),
            "spec.template.spec.activeDeadlineSeconds",
            "Forbidden: activeDeadlineSeconds in StatefulSet is not Supported",
        ),
        (
            lambda obj: obj.spec.volumeClaimTemplates[0].spec.ClearField("accessModes"),
            "spec.volumeClaimTemplates[0].spec.accessModes",
            "Required value: at least 1 access mode is required",
        ),
    ],
)
def test_invalid_field_has_message_of_kubernetes(change: Change, field: str, message: str) -> None:
    assert violations(change) == [(field, message)]


def test_name_is_a_label() -> None:
    assert [field for field, _ in violations(lambda obj: setattr(obj.metadata, "name", "a.b"))] == ["metadata.name"]


def test_unknown_mount_is_refused() -> None:
    (violation,) = violations(lambda obj: obj.spec.ClearField("volumeClaimTemplates"))
    assert violation[0] == "spec.template.spec.containers[0].volumeMounts[0].name"


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (lambda obj: setattr(obj.spec, "replicas", 5), True),
        (lambda obj: setattr(obj.spec, "minReadySeconds", 5), True),
        (lambda obj: setattr(obj.spec, "revisionHistoryLimit", 5), True),
        (lambda obj: setattr(obj.spec.ordinals, "start", 5), True),
        (lambda obj: setattr(obj.spec.template.spec.containers[0], "image", "i:2"), True),
        (lambda obj: setattr(obj.spec.updateStrategy.rollingUpdate, "partition", 5), True),
        (lambda obj: setattr(obj.spec.persistentVolumeClaimRetentionPolicy, "whenScaled", "Delete"), True),
        (lambda obj: setattr(obj.spec, "serviceName", "other"), False),
        (lambda obj: setattr(obj.spec, "podManagementPolicy", "Parallel"), False),
        (lambda obj: obj.spec.selector.matchLabels.pop("app"), False),
        (lambda obj: obj.spec.volumeClaimTemplates[0].metadata.labels.update(a="b"), False),
    ],
)
def test_only_some_fields_of_the_spec_may_change(change: Change, allowed: bool) -> None:
    out: list[Violation] = []
    STRATEGY.check_change(make(change), make(), out)
    assert bool(out) is not allowed


def test_status_counts_do_not_exceed_replicas() -> None:
    obj = make()
    obj.status.replicas, obj.status.readyReplicas, obj.status.availableReplicas = 2, 1, 2
    out: list[Violation] = []
    STRATEGY.check_status(obj, out)
    assert [violation.message for violation in out] == ["Invalid value: 2: cannot be greater than status.readyReplicas"]


def test_revision_needs_data() -> None:
    strategy = ControllerRevisionStrategy(CONTROLLER_REVISIONS)
    revision = ControllerRevision(revision=-1)
    revision.metadata.name, revision.metadata.namespace = "web-1", "default"
    assert [(violation.field, violation.message) for violation in strategy.validate(revision)] == [
        ("data", "Required value: data is mandatory"),
        ("revision", "Invalid value: -1: must be greater than or equal to 0"),
    ]
