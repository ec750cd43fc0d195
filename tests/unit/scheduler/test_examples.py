"""The examples do what the documentation says of them."""

import random
import re
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import CliRunner

from examples.extenders.hot_racks import Handler
from examples.policies.compare import main as compare
from examples.policies.compare import play
from examples.policies.trace import nodes, trace
from pinnace.scheduler.config import build_frameworks, parse_configuration, read_configuration
from pinnace.scheduler.extenders.extender import Extenders, query_extenders
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.main import main
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import Placed, schedule_one
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
    arrivals = trace(9, random.Random(1))  # half of what the nodes are for
    policies = build_frameworks(parse_configuration((EXAMPLES.parent / "policies" / "policies.yaml").read_text()), Offline())
    machines = list(nodes(18))
    days = {name: play(policy, machines, arrivals, 0) for name, policy in policies.items()}
    assert {day.arrived for day in days.values()} == {len(arrivals)}
    assert fmean(days["pack"].used) < fmean(days["reserve"].used) < fmean(days["spread"].used)
    assert fmean(days["spread"].uneven) < fmean(days["reserve"].uneven) < fmean(days["pack"].uneven)
    assert days["pack"] == play(policies["pack"], machines, arrivals, 0)


def test_nodes_are_labelled_as_it_is_asked_for() -> None:
    asked = ["--nodes", "9", "--config", str(EXAMPLES / "cheap.yaml")]
    shown = CliRunner().invoke(compare, [*asked, "--labels", "price=1..10", "--labels", "disk=ssd,hdd"])
    assert shown.exit_code == 0 and "nodes in use" in shown.output and "cheap ..." in shown.stderr
    labels = [dict(node.metadata.labels) for node in nodes(50, {"price": ["1", "2"], "disk": ["ssd"]})]
    assert {label["price"] for label in labels} == {"1", "2"} and {label["disk"] for label in labels} == {"ssd"}
    assert labels == [dict(node.metadata.labels) for node in nodes(50, {"price": ["1", "2"], "disk": ["ssd"]})]
    for wrong in ("price", "=1", "price=", "price=10..1", "price=a..b"):
        said = CliRunner().invoke(compare, [*asked, "--labels", wrong])
        assert said.exit_code == 2 and "expected" in said.stderr


def test_compare_names_the_file_of_a_plugin_that_does_not_exist(tmp_path: Path) -> None:
    config = tmp_path / "cheap.yaml"
    config.write_text((EXAMPLES / "cheap.yaml").read_text())  # without its plugin
    refused = CliRunner().invoke(compare, ["--config", str(config)])
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"Error: {config}: profiles[0].plugins.multiPoint.enabled[0]: ")
    assert f"there is no file {tmp_path}/cheapest_node.py" in refused.stderr


def test_policy_that_fails_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    plugin = tmp_path / "eager.py"
    plugin.write_text(
        "from pinnace.scheduler.framework import PerNodeScore\n"
        "class Eager(PerNodeScore):\n"
        "    name = 'Eager'\n"
        "    def score_node(self, pod, node): return 101\n"
    )
    file = tmp_path / "two.yaml"
    usual = "- schedulerName: usual"
    own = (EXAMPLES / "cheap.yaml").read_text().replace("cheapest_node.py:CheapestNode", f"{plugin}:Eager")
    file.write_text(own.rstrip() + f"\n{usual}\n")
    said = CliRunner().invoke(compare, ["--nodes", "9", "--config", str(file)])
    assert said.exit_code == 1 and "usual" in said.stdout and "nodes in use" in said.stdout
    assert "cheap" not in said.stdout
    assert 'Error: profile cheap: plugin "Eager" failed in Score: ValueError: scores must be from 0 to 100' in said.stderr


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
