"""What limit ranges complete, and what they refuse: https://kubernetes.io/docs/concepts/policy/limit-range/."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS, Object
from pinnace.api.wellknown import LIMITS_ANNOTATION
from pinnace.apiserver.admission.limits import LimitRanger
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.storage.interface import ChangeBatch, KeyChange, KeyValue
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage

BY = WriteRequest(UNSECURED)
Item = dict[str, Any]
Amounts = dict[str, str]


def encoded(*items: Item, namespace: str = "default") -> bytes:
    obj = from_dict(LIMIT_RANGES, {"metadata": {"name": "l", "namespace": namespace}, "spec": {"limits": list(items)}})
    STRATEGIES[LIMIT_RANGES.plural].prepare_create(obj)
    return obj.SerializeToString()


def ranger(*items: Item, namespace: str = "default") -> LimitRanger:
    cacher = Cacher(MemoryStorage())
    cacher.install_state(5, [KeyValue(LIMIT_RANGES.key(namespace, "l"), encoded(*items, namespace=namespace), 5, 5, 1)])
    return LimitRanger(cacher.cache_of(LIMIT_RANGES))


def claim(size: str, **labels: str) -> Any:
    metadata = {"name": "c", "namespace": "default", "labels": labels}
    return from_dict(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": {"resources": {"requests": {"storage": size}}}})


def pod(requests: Amounts | None = None, limits: Amounts | None = None) -> Pod:
    return make_pod("a").container(requests, limits).new()


def refused(plugin: LimitRanger, obj: Any, old: Any = None) -> str:
    """What is said of it; empty: it is let through."""
    try:
        plugin.validate(BY, AdmissionOperation.CREATE if old is None else AdmissionOperation.UPDATE, obj, old)
    except Rejected as rejected:
        return rejected.refusal.message
    return ""


def plain(amounts: Any) -> Amounts:
    return {name: amount.string for name, amount in amounts.items()}


class TestDefaults:
    @pytest.mark.parametrize(
        ("requests", "limits", "expected"),
        [
            ({}, {}, ({"cpu": "100m", "memory": "64Mi"}, {"cpu": "1", "memory": "64Mi"})),
            ({"cpu": "200m"}, {}, ({"cpu": "200m", "memory": "64Mi"}, {"cpu": "1", "memory": "64Mi"})),
            ({}, {"cpu": "2"}, ({"cpu": "2", "memory": "64Mi"}, {"cpu": "2", "memory": "64Mi"})),
            ({"memory": "1Gi"}, {"memory": "2Gi"}, ({"cpu": "100m", "memory": "1Gi"}, {"cpu": "1", "memory": "2Gi"})),
        ],
    )
    def test_limit_ranger_sets_missing_requests_and_limits(
        self, requests: Amounts, limits: Amounts, expected: tuple[Amounts, Amounts]
    ) -> None:
        plugin = ranger({"type": "Container", "defaultRequest": {"cpu": "100m"}, "default": {"cpu": "1", "memory": "64Mi"}})
        new = make_pod("a").container(requests, limits).new()
        plugin.admit(BY, new)
        STRATEGIES[PODS.plural].prepare_create(new)
        resources = new.spec.containers[0].resources
        assert (plain(resources.requests), plain(resources.limits)) == expected

    def test_limit_ranger_records_its_defaults_in_an_annotation(self) -> None:
        new = make_pod("a").container().container({"cpu": "1"}, {"cpu": "1"}).init().new()
        plugin = ranger({"type": "Container", "default": {"cpu": "1"}})
        plugin.admit(BY, new)
        assert new.metadata.annotations[LIMITS_ANNOTATION] == (
            "LimitRanger plugin set: cpu request for container c0; cpu limit for container c0; "
            "cpu request for init container i0; cpu limit for init container i0"
        )
        again = Pod()
        again.CopyFrom(new)
        plugin.admit(BY, again)
        assert again == new

    def test_limits_of_pods_and_of_other_namespaces_set_nothing(self) -> None:
        for plugin in (
            ranger({"type": "Pod", "max": {"cpu": "1"}}),
            ranger({"type": "Container", "default": {"cpu": "1"}}, namespace="other"),
        ):
            new, before = pod(), pod()
            plugin.admit(BY, new)
            assert new == before

    def test_ranges_are_those_of_now(self) -> None:
        cacher = Cacher(MemoryStorage())
        cacher.install_state(5, [])
        plugin, key = LimitRanger(cacher.cache_of(LIMIT_RANGES)), LIMIT_RANGES.key("default", "l")
        for revision, value in ((6, encoded({"type": "Container", "max": {"cpu": "1"}})), (7, None)):
            cacher.apply_changes(ChangeBatch(revision, [KeyChange(key, value, 6, revision)]))
            assert bool(refused(plugin, pod({"cpu": "2"}, {"cpu": "2"}))) is (value is not None)


MINIMUM = {"min": {"cpu": "200m"}}
MAXIMUM = {"max": {"cpu": "1"}}
RATIO = {"maxLimitRequestRatio": {"cpu": "2"}}


class TestBounds:
    @pytest.mark.parametrize(
        ("bounds", "requests", "limits", "expected"),
        [
            (MINIMUM, {"cpu": "200m"}, {"cpu": "1"}, ""),
            (MINIMUM, {}, {}, "minimum cpu usage per {} is 200m.  No request is specified"),
            (MINIMUM, {"cpu": "100m"}, {}, "minimum cpu usage per {} is 200m, but request is 100m"),
            (MINIMUM, {"cpu": "200m"}, {"cpu": "150m"}, "minimum cpu usage per {} is 200m, but limit is 150m"),
            (MAXIMUM, {"cpu": "1"}, {"cpu": "1000m"}, ""),
            (MAXIMUM, {"cpu": "1"}, {}, "maximum cpu usage per {} is 1.  No limit is specified"),
            (MAXIMUM, {"cpu": "1"}, {"cpu": "1500m"}, "maximum cpu usage per {} is 1, but limit is 1500m"),
            (MAXIMUM, {"cpu": "2"}, {"cpu": "1"}, "maximum cpu usage per {} is 1, but request is 2"),
            (
                {"max": {"memory": "1Gi"}}, {"memory": "1500M"}, {"memory": "1500M"},
                "maximum memory usage per {} is 1Gi, but limit is 1500M",
            ),
            (RATIO, {"cpu": "500m"}, {"cpu": "1"}, ""),
            (
                RATIO, {}, {"cpu": "1"},
                "cpu max limit to request ratio per {} is 2, but no request is specified or request is 0",
            ),
            (
                RATIO, {"cpu": "1"}, {},
                "cpu max limit to request ratio per {} is 2, but no limit is specified or limit is 0",
            ),
            (
                RATIO, {"cpu": "200m"}, {"cpu": "500m"},
                "cpu max limit to request ratio per {} is 2, but provided ratio is 2.500000",
            ),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("type_", ["Container", "Pod"])
    def test_limits_of_containers_and_pods(
        self, type_: str, bounds: Item, requests: Amounts, limits: Amounts, expected: str
    ) -> None:
        said = refused(ranger({"type": type_, **bounds}), pod(requests, limits))
        assert said == (f'pods "a" is forbidden: {expected.format(type_)}' if expected else "")

    def test_pod_is_bounded_by_the_sum_of_its_containers(self) -> None:
        plugin = ranger({"type": "Pod", "max": {"cpu": "1"}})
        half = {"cpu": "500m"}
        assert not refused(plugin, make_pod("a").container(half, half).container(half, half).new())
        three = make_pod("a").container(half, half).container(half, half).container(half, half).new()
        assert refused(plugin, three).endswith("maximum cpu usage per Pod is 1, but limit is 1500m")

    def test_each_container_is_bounded_and_so_are_init_containers(self) -> None:
        plugin = ranger({"type": "Container", "min": {"cpu": "200m"}})
        assert not refused(plugin, make_pod("a").req(cpu="200m").req(cpu="1").new())
        assert refused(plugin, make_pod("a").req(cpu="200m").init(cpu="100m").new())

    def test_all_violations_are_reported(self) -> None:
        plugin = ranger({"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}})
        assert refused(plugin, pod({}, {"cpu": "2", "memory": "2Gi"})) == (
            'pods "a" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, '
            "maximum memory usage per Container is 1Gi, but limit is 2Gi]"
        )

    @pytest.mark.parametrize(
        ("size", "expected"),
        [
            ("1Gi", ""),
            ("512Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"),
            ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        ],
    )
    def test_limits_of_claims(self, size: str, expected: str) -> None:
        plugin = ranger({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})
        forbidden = f'persistentvolumeclaims "c" is forbidden: {expected}' if expected else ""
        assert refused(plugin, claim(size)) == forbidden
        assert refused(plugin, claim(size), old=claim("2Gi")) == forbidden

    def test_claim_that_was_there_before_the_limit_may_still_be_changed_otherwise(self) -> None:
        plugin = ranger({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
        assert not refused(plugin, claim("2Gi", app="web"), old=claim("2Gi"))

    def test_stored_claim_with_an_invalid_quantity_is_accepted(self) -> None:
        plugin = ranger({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}})
        old, new = claim("1Gi"), claim("2Gi")
        for item in (old, new):
            item.spec.resources.requests["cpu"].string = "much"
        assert not refused(plugin, new, old=old)

    @pytest.mark.parametrize("obj", [pod({"cpu": "9"}), claim("9Gi")])
    def test_limits_of_other_types_do_not_matter(self, obj: Object) -> None:
        assert not refused(ranger({"type": "example.com/thing", "max": {"cpu": "1", "storage": "1Gi"}}), obj)
