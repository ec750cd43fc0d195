"""The examples do what the documentation says of them."""

from pathlib import Path

import pytest

from scheduler.config import build, parse
from scheduler.cycle import Placed, schedule_one
from scheduler.framework.handle import Offline
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "plugins"


@pytest.mark.parametrize(
    ("file", "profile", "nodes", "placed"),
    [
        ("cheap.yaml", "cheap", [make_node("dear").label("price", "50"), make_node("liked").label("price", "3")], []),
        ("fast_disks.yaml", "disks", [make_node("slow").label("disk", "ssd"), make_node("liked").label("disk", "nvme")], []),
        ("fast_disks.yaml", "packing", [make_node("empty"), make_node("liked")], [make_pod("there").req(cpu=1).node("liked")]),
    ],
)
def test_placements(
    monkeypatch: pytest.MonkeyPatch, file: str, profile: str, nodes: list[NodeBuilder], placed: list[PodBuilder]
) -> None:
    monkeypatch.chdir(ROOT)
    frameworks = build(parse((EXAMPLES / file).read_text()), Offline())
    decided = schedule_one(info(make_pod("a").req(cpu=1)), cache_of(*nodes, placed=placed), frameworks[profile], 0)
    assert isinstance(decided, Placed) and decided.node == "liked"
