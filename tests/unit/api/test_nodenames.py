"""Patterns of node names."""

import pytest

from pinnace.api.names import NodeNames


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("n7", ["n7"], ["n70", "n", "N7", ""]),
        ("node-0..99", ["node-0", "node-9", "node-99"], ["node-100", "node-", "node-01", "node-0..99", "node-٣", "xnode-1"]),
        ("node-5..9", ["node-5", "node-9"], ["node-4", "node-10"]),
        ("rack2-10..11", ["rack2-10", "rack2-11"], ["rack2-1", "rack2-101"]),
        ("kubelet-*", ["kubelet-0", "kubelet-7f3a-12"], ["kubelet", "kubelets-0"]),
    ],
)  # fmt: skip
def test_pattern_matches_exactly_its_names(pattern: str, names: list[str], others: list[str]) -> None:
    parsed = NodeNames.parse([pattern])
    assert [name for name in names if name not in parsed] == []
    assert [name for name in others if name in parsed] == []


def test_any_of_several_patterns_matches() -> None:
    names = NodeNames.parse(["gateway", "edge-0..1", "zone-*"])
    assert all(name in names for name in ("gateway", "edge-1", "zone-x"))
    assert "edge-2" not in names


def test_empty_pattern_list_matches_nothing() -> None:
    assert "" not in NodeNames() and "n0" not in NodeNames.parse([])


@pytest.mark.parametrize("pattern", ["", "Node", "a b", "*a", "a..b", "..", "x" * 300, "-0..9", "n_*"])
def test_malformed_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"node-0\.\.99"):
        NodeNames.parse([pattern])
