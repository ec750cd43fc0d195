"""The examples do what the documentation says of them."""

import re
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from examples.extenders.hot_racks import Handler
from pinnace.scheduler.config import build_frameworks, parse_configuration, read_configuration
from pinnace.scheduler.extenders.extender import Extenders, query_extenders
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.main import main
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import Placed, schedule_one
from pinnace.study.plan import load_metrics, read_study
from pinnace.study.recording import Recorder
from pinnace.study.simulation import Simulation
from pinnace.study.trace import Generated, generate
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
def test_placements(file: str, profile: str, nodes: list[NodeBuilder], placed: list[PodBuilder]) -> None:
    frameworks = build_frameworks(read_configuration(EXAMPLES / file), Offline())
    decided = schedule_one(
        info(make_pod("a").req(cpu=1)), NodeSelector(cache_of(*nodes, placed=placed), frameworks[profile], 0)
    )
    assert isinstance(decided, Placed) and decided.node == "liked"


def test_schedulers_of_ones_own_do_not_get_in_each_others_way() -> None:
    commands = re.findall(r"`(pinnace-scheduler [^`]+)`", (ROOT / "examples" / "README.md").read_text())
    assert len(commands) > 1
    parsed = [main.make_context("pinnace-scheduler", command.split()[1:]).params for command in commands]
    assert len({item["http"] for item in parsed}) == len(commands)


def test_policies_do_what_they_are_named_for() -> None:
    study = read_study(EXAMPLES.parent / "studies" / "day.yaml")
    trace = generate("day", Generated(nodes=18, hours=12, load=0.35))
    figures = {}
    for profile in study.profiles:
        recorder = Recorder(trace, load_metrics(study.metrics), inflated=False)
        simulation = Simulation(study.configuration_of(profile), trace, recorder)
        simulation.run()
        figures[profile] = recorder.finish(simulation)
    pack, reserve, spread = figures["pack"], figures["reserve"], figures["spread"]
    assert pack["used nodes"] < reserve["used nodes"] < spread["used nodes"]
    assert spread["imbalance"] < reserve["imbalance"] < pack["imbalance"]
    assert spread["fullest_node_share"] < pack["fullest_node_share"]
    assert spread["room_for_large_pods"] > 0


@pytest.mark.processes
@pytest.mark.parametrize("program", ["informer.py", "etcd_watch.py"])
def test_without_a_configuration_a_program_ends_with_a_hint(program: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(EXAMPLES.parent / program)]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and ended.stderr.startswith("error: ") and "\nhint: " in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_extender_knows_which_racks_are_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "log_message", lambda *_: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    [configured] = parse_configuration((EXAMPLES.parent / "extenders" / "hot_racks.yaml").read_text()).extenders
    extenders = Extenders([replace(configured, url_prefix=f"http://127.0.0.1:{server.server_port}")])
    pod, nodes = info(make_pod("a")), [make_node(f"in-{rack}").label("rack", rack).build() for rack in "abc"]
    opinion = await query_extenders(extenders.extenders_of(pod), pod, nodes)
    await extenders.close()
    server.shutdown()
    server.server_close()
    serving.join()
    [objections] = opinion.objections
    assert objections.reasons == {"in-c": "node(s) were in a rack that is too hot"}
    assert opinion.scores == {"in-a": 400, "in-b": 150}
