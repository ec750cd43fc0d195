"""The examples do what the documentation says of them."""

import random
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from statistics import fmean

import pytest

from examples.extenders.hot_racks import Handler
from examples.policies.compare import play
from examples.policies.trace import trace
from scheduler.config import build, parse
from scheduler.cycle import Placed, schedule_one
from scheduler.extenders.asking import ask_about_nodes
from scheduler.extenders.extenders import Extenders
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


async def test_the_extender_knows_which_racks_are_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "log_message", lambda *_: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    [configured] = parse((EXAMPLES.parent / "extenders" / "hot_racks.yaml").read_text()).extenders
    extenders = Extenders([replace(configured, url_prefix=f"http://127.0.0.1:{server.server_port}")])
    pod, nodes = info(make_pod("a")), [make_node(f"in-{rack}").label("rack", rack).build() for rack in "abc"]
    opinion = await ask_about_nodes(extenders.interested(pod), pod, nodes)
    await extenders.close()
    server.shutdown()
    server.server_close()
    serving.join()
    [objections] = opinion.objections
    assert objections.reasons == {"in-c": "node(s) were in a rack that is too hot"}
    assert opinion.scores == {"in-a": 400, "in-b": 150}
