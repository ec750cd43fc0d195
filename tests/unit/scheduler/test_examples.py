"""The examples do what the documentation says of them."""

import random
from pathlib import Path
from statistics import fmean

import pytest

from examples.policies.compare import play
from examples.policies.trace import trace
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


def test_policies_do_what_they_are_named_for() -> None:
    arrivals = trace(9, random.Random(1))  # half of what the nodes are for
    policies = build(parse((EXAMPLES.parent / "policies" / "policies.yaml").read_text()), Offline())
    days = {name: play(policy, 18, arrivals, 0) for name, policy in policies.items()}
    assert {day.arrived for day in days.values()} == {len(arrivals)}
    assert fmean(days["pack"].used) < fmean(days["reserve"].used) < fmean(days["spread"].used)
    assert fmean(days["spread"].uneven) < fmean(days["reserve"].uneven) < fmean(days["pack"].uneven)
    assert days["pack"] == play(policies["pack"], 18, arrivals, 0)
