"""Each check accepts valid placements and counts violations."""

from pinnace.verification.bench import workloads

ZONES = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}


def test_at_most() -> None:
    assert workloads.limit_pods_per_node(1)(["a1", "a2", "b1"], {}) == 0
    assert workloads.limit_pods_per_node(1)(["a1", "a1", "a1", "b1", "b1"], {}) == 3
    assert workloads.limit_pods_per_node(2)(["a1", "a1", "a1", "b1", "b1"], {}) == 1


def test_same_zone() -> None:
    assert workloads.same_zone(["a1", "a2", "a1"], ZONES) == 0
    assert workloads.same_zone(["a1", "a2", "b1", "a node without a zone"], ZONES) == 2
    assert workloads.same_zone([], ZONES) == 0


def test_within_zones() -> None:
    check = workloads.within_zones("a", "b")
    assert check(["a1", "b1"], ZONES) == 0
    assert check(["a1", "c1", "a node without a zone"], ZONES) == 2


def test_even_zones() -> None:
    check = workloads.even_zones(max_skew=1)
    assert check(["a1", "a2", "b1", "c1"], ZONES) == 0
    assert check(["a1", "a2", "b1"], ZONES) == 1, "zone c has no pods"
    assert check(["a1", "a1", "a1", "b1", "c1"], ZONES) == 1


def test_overcommitted() -> None:
    assert workloads.count_overcommitted_nodes([("a1", 100)] * 40 + [("b1", 4000)]) == 0
    assert workloads.count_overcommitted_nodes([("a1", 100)] * 40 + [("b1", 3999), ("a1", 1)]) == 1
