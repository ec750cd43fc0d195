"""Questions of each kind, and the exact words of the answers."""

import asyncio
import inspect
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from textwrap import dedent
from typing import NoReturn

import grpc.aio
import pytest
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Event, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.records import to_json
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.cli.verbs.why import format_explanation, parse_explanation
from pinnace.client.errors import Forbidden
from pinnace.fit.table import BoolArray
from pinnace.scheduler.config import with_plugin
from pinnace.scheduler.explaining import SelectedConfiguration, select_configuration
from pinnace.scheduler.extenders.interface import ExtenderConfiguration
from pinnace.scheduler.framework import CycleState, FilterResult, NodeTable, PodInfo
from tests.builders import make_node, make_pod
from tests.unit.client.fakeserver import FakeServer, refuse
from tests.unit.scheduler.asking_why import BUSY, NO_PREEMPTION, THREE, explained, why


def test_why_here() -> None:
    pod = make_pod("a").req(cpu=1).node("n1")
    assert why(pod, THREE, [pod, BUSY[0]]) == dedent("""\
        pod default/a is on n1. If it were removed and scheduled again:
        Feasible: 2 of 3 nodes. n1 has the best score, like 1 other node: one of them is selected at random.

        Reasons why nodes are not feasible (ALONE: nodes with only this reason):
          PLUGIN             NODES   ALONE   REASON             WHICH
          NodeResourcesFit   1       1       Insufficient cpu   n0

        Scores from 0 to 100, multiplied by the weights:
          RANK   NODE        TOTAL   NodeResourcesFit   NodeResourcesBalancedAllocation
          1      n1 (here)   155     87                 68
          1      n2          155     87                 68
    """)


def test_it_would_go_elsewhere_now() -> None:
    pod = make_pod("a").req(cpu=1).node("n0")
    said = why(pod, THREE, [pod, make_pod("later").req(cpu=2).node("n0")]).splitlines()
    assert said[1] == "Feasible: 3 of 3 nodes. The best score is that of n1 and 1 more; n0 has rank 3."
    said = why(pod, [make_node("n0").unschedulable(), make_node("n1")], [pod]).splitlines()
    assert said[1] == "Feasible: 1 of 2 nodes. The best score is that of n1; n0 is no longer feasible."


def test_why_pending_for_several_reasons() -> None:
    nodes = [*THREE, make_node("n3").taint("gpu", "true"), make_node("n4").taint("gpu", "true").capacity(cpu=2, pods=9)]
    assert why(make_pod("a").req(cpu=3), nodes, BUSY) == dedent("""\
        pod default/a is pending: no node is feasible.
        0/5 nodes are available: 2 node(s) had untolerated taint {gpu: true}, 3 Insufficient cpu.

        Reasons why nodes are not feasible (ALONE: nodes with only this reason):
          PLUGIN             NODES   ALONE   REASON                                      WHICH
          TaintToleration    2       1       node(s) had untolerated taint {gpu: true}   n3, n4
          NodeResourcesFit   4       3       Insufficient cpu                            n0, n1, n2, n4

        The smallest changes that would make a node feasible (alternatives):
          * tolerate gpu=true:NoSchedule  -> n3
          * free 2200m cpu on n0, the closest of 3 nodes, or reduce its requests accordingly: it requests 3 cpu, 800m of 4 is free  -> n0
    """)  # noqa: E501


def test_why_not_that_node() -> None:
    assert why(make_pod("a").req(cpu=1), [*THREE, make_node("n3").unschedulable()], BUSY, node="n1") == dedent("""\
        pod default/a is pending: no node is feasible.
        0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient cpu.

        n1 is not feasible:
          PLUGIN             WHY
          NodeResourcesFit   Insufficient cpu: it requests 1 cpu, 500m of 4 is free, 500m is missing
    """)


def test_why_not_that_node_although_it_fits() -> None:
    placed = [make_pod("b").req(cpu=2).node("n0")]
    assert why(make_pod("a").req(cpu=1), THREE, placed, node="n0") == dedent("""\
        pod default/a is pending, and at least one node is feasible: it will be scheduled when its turn comes in the queue.
        Feasible: 3 of 3 nodes. The best score is that of n1 and 1 more.

        n0 is feasible and has rank 3: its score is 129, and the score of n1 is 155.
        The largest difference is NodeResourcesFit: 61 instead of 87.

        Scores from 0 to 100, multiplied by the weights:
          RANK   NODE   TOTAL   NodeResourcesFit   NodeResourcesBalancedAllocation
          1      n1     155     87                 68
          1      n2     155     87                 68
          3      n0     129     61                 68
    """)
    assert "\nn1 is feasible and has the best score.\n" in why(make_pod("a").req(cpu=1), THREE, placed, node="n1")


def test_cluster_without_nodes_is_explained() -> None:
    assert why(make_pod("a").req(cpu=1, memory="1Gi"), []) == dedent("""\
        pod default/a is pending: no node is feasible.
        no nodes available to schedule pods

        The smallest change that would make a node feasible:
          * add a node with 1 cpu and 1Gi memory free
    """)


def test_gated() -> None:
    assert why(make_pod("a").req().gate("quota").gate("budget"), THREE[:1], BUSY[:1]) == dedent("""\
        pod default/a is pending: it has scheduling gates: quota, budget; it is not scheduled until they are removed.
        Feasible: 1 of 1 node. The best score is that of n0.

        The smallest change that would make a node feasible:
          * remove the scheduling gates quota and budget

        Scores from 0 to 100, multiplied by the weights:
          RANK   NODE   TOTAL   NodeResourcesFit
          1      n0     56      56
    """)


class Boom:
    name = "Boom"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        raise RuntimeError("boom")


def test_plugin_that_fails_is_named() -> None:
    configuration = with_plugin(NO_PREEMPTION, "tests.unit.scheduler.test_why:Boom")
    assert why(make_pod("a"), THREE, configuration=configuration) == (
        'pod default/a is pending: plugin "Boom" failed in Filter: RuntimeError: boom '
        f"(test_why.py:{inspect.getsourcelines(Boom.filter)[1] + 1}).\n"
    )


class Sulk:
    name = "Sulk"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> NoReturn:
        raise RuntimeError


def test_plugin_that_fails_without_a_word_leaves_no_gap() -> None:
    configuration = with_plugin(NO_PREEMPTION, "tests.unit.scheduler.test_why:Sulk")
    assert why(make_pod("a"), THREE, configuration=configuration) == (
        'pod default/a is pending: plugin "Sulk" failed in Score: RuntimeError '
        f"(test_why.py:{inspect.getsourcelines(Sulk.score)[1] + 1}).\nFeasible: 3 of 3 nodes.\n"
    )


def test_scheduler_that_nothing_runs() -> None:
    pod = make_pod("a").scheduler("cheap")
    followed = select_configuration("cheap", [Election(name="scheduler", scheduler_names=["default-scheduler"])])
    said = 'no running scheduler has a profile named "cheap"; profiles: default-scheduler.\n'
    assert why(pod, THREE, followed=followed) == f"pod default/a is pending. Further information is not available: {said}"
    assert (
        why(pod.node("n1"), THREE, followed=followed) == f"pod default/a is on n1. Further information is not available: {said}"
    )


def test_unconfirmed_configuration_shows_filters_only() -> None:
    """With a scoring policy of its own, the scheduler may have good reasons for a node that the default one ranks last."""
    nodes = [*THREE[:2], make_node("n2").taint("gpu", "true")]
    followed = SelectedConfiguration(NO_PREEMPTION, "the default configuration", "it differs", assumed=True)
    assert why(make_pod("a").node("n1"), nodes, followed=followed).splitlines() == [
        "pod default/a is on n1. The configuration of its scheduler is unknown: it differs.",
        "The results are valid only for filters of the default configuration that the scheduler also uses:",
        "2 of 3 nodes pass these filters. Other filters, scores and preemption are unknown.",
        "",
        "Reasons why nodes are not feasible (ALONE: nodes with only this reason):",
        "  PLUGIN            NODES   ALONE   REASON                                      WHICH",
        "  TaintToleration   1       1       node(s) had untolerated taint {gpu: true}   n2",
    ]
    asked = explained(make_pod("a").node("n1"), nodes, followed=followed, node="n0")
    assert (asked.ranking, asked.weights, asked.best, asked.remedies) == ([], {}, 0, [])


def test_configuration_that_was_asked_for_is_followed_with_a_warning() -> None:
    followed = SelectedConfiguration(NO_PREEMPTION, "my.yaml", "it differs")
    first, *_, last = why(make_pod("a"), THREE, followed=followed).splitlines()
    assert first == "The results are based on my.yaml, which the scheduler may not use: it differs."
    assert last.split()[:2] == ["1", "n2"]


def test_pod_of_a_node_that_does_not_exist() -> None:
    pod = make_pod("a").req(cpu=1).node("n77")
    said = why(pod, [make_node("n0")], [pod]).splitlines()
    assert said[:2] == [
        "pod default/a is bound to n77, which does not exist; pods of a deleted node are deleted within a minute. "
        "If it were removed and scheduled again:",
        "Feasible: 1 of 1 node. The best score is that of n0.",
    ]


def test_bound_pod_that_would_not_be_tried() -> None:
    pod = make_pod("a").gate("g").node("n0")
    said = why(pod, THREE, [pod]).splitlines()
    assert said[1] == "It would not be scheduled: it has scheduling gates: g; it is not scheduled until they are removed."


def test_extenders_are_not_asked_but_named() -> None:
    extenders = [
        ExtenderConfiguration("http://everybody"),
        ExtenderConfiguration("http://gpus", managed_resources={"example.com/gpu": True}),
    ]
    configuration = replace(NO_PREEMPTION, extenders=extenders)
    said = "Extenders can reject nodes and add scores. This command does not call them: {}."
    assert why(make_pod("a"), THREE, configuration=configuration).splitlines()[2] == said.format("http://everybody")
    gpu = why(make_pod("a").container({"example.com/gpu": 1}), THREE, configuration=configuration)
    assert gpu.splitlines()[2] == said.format("http://everybody, http://gpus")


def test_where_extenders_are_not_asked_nothing_is_called_chance() -> None:
    configuration = replace(NO_PREEMPTION, extenders=[ExtenderConfiguration("http://everybody")])
    pod = make_pod("a").node("n0")
    assert "one of them is selected at random" in why(pod, THREE, [pod])
    said = why(pod, THREE, [pod], configuration=configuration)
    assert "n0 has the best score of the plugins, like 2 other nodes.\n" in said and "chance" not in said


def test_explanation_names_profile_and_leader() -> None:
    event = Event(type="Warning", reason="FailedScheduling", message="no", reportingComponent="default-scheduler")
    said = list(format_explanation(explained(make_pod("a"), THREE), [], 0.0, leaderless="scheduler"))
    assert said[0] == 'pod default/a is pending: election "scheduler" has no leader, so no pods are scheduled.'
    said = list(format_explanation(explained(make_pod("a"), []), [event], 0.0, leaderless="scheduler"))
    assert said[1] == 'Election "scheduler" has no leader, so no pods are scheduled.'
    assert (
        said[-3:]
        == [
            "Events of its scheduler:",
            "  Type     Reason            Age        From               Message",
            "  ----     ------            ---        ----               -------",
            "  Warning  FailedScheduling  <unknown>  default-scheduler  no",
        ][-3:]
    )


@pytest.mark.parametrize("bound", [False, True])
def test_cluster_is_as_before(bound: bool) -> None:
    """The same question has the same answer: nothing of it is left in the objects."""
    pod = make_pod("a").req(cpu=3).priority(10)
    if bound:
        pod.node("n0")
    assert why(pod, THREE, BUSY) == why(pod, THREE, BUSY)


def test_document() -> None:
    """What scripts read by `-o json`: its keys, and their order."""
    nodes = [*THREE[:2], make_node("n2").taint("gpu", "true")]
    placed = [*BUSY[:1], make_pod("b").req(cpu=2).node("n1")]
    result = to_json(explained(make_pod("a").req(cpu=1), nodes, placed, node="n2"))
    scores = {"NodeResourcesFit": 61.0, "NodeResourcesBalancedAllocation": 68.0}
    result["ranking"][0]["scores"] = {plugin: round(score, 2) for plugin, score in result["ranking"][0]["scores"].items()}
    result["ranking"][0]["total"] = round(result["ranking"][0]["total"], 1)
    assert json.dumps(result, indent=2) == json.dumps(
        {
            "pod": "default/a",
            "scheduler": "default-scheduler",
            "bound": "",
            "nodes": 3,
            "feasible": 1,
            "problem": "",
            "message": "",
            "refusals": [
                {
                    "plugin": "TaintToleration",
                    "reason": "node(s) had untolerated taint {gpu: true}",
                    "nodes": ["n2"],
                    "alone": 1,
                },
                {"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": ["n0"], "alone": 1},
            ],
            "weights": {"NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1},
            "ranking": [{"node": "n1", "rank": 1, "total": 129.0, "scores": scores}],
            "best": 1,
            "remedies": [],
            "preemption": "",
            "asked": {
                "node": "n2",
                "objections": [
                    {"plugin": "TaintToleration", "details": ["it does not tolerate the taint gpu=true:NoSchedule"]}
                ],
            },
            "extenders": [],
            "configuration": "the default configuration",
            "unconfirmed": "",
            "filtersOnly": False,
            "nodeIsGone": False,
            "unknown": "",
        },
        indent=2,
    )
    result = to_json(explained(make_pod("a").req(cpu=5), THREE[:1]))
    text = "reduce its requests, or add a larger node: it requests 5 cpu; n0 has 4"
    assert result["remedies"] == [{"text": text, "nodes": [], "plugins": ["NodeResourcesFit"]}]
    assert result["asked"] is None


@pytest.mark.processes
def test_servers_that_are_too_slow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "pinnace.scheduler.explaining", "--server", server, "--timeout", "0.2", "default", "a"]
        said = subprocess.run(command, capture_output=True, check=True).stdout
    assert json.loads(said) == {
        "explanation": None,
        "unexplained": {"error": "the API servers did not respond within 0.2 s", "kind": "too slow", "status": ""},
    }


@pytest.mark.processes
async def test_call_that_is_refused() -> None:
    refused = Refusal(Code.PERMISSION_DENIED, "Forbidden", "you may not get pods", metadata=(("hint", "a ClusterRole"),))

    async def get(request: GetRequest, context: grpc.aio.ServicerContext) -> Message:
        await refuse(context, refused)
        return Pod()

    servers = await FakeServer().start()
    servers.on("/pinnace.v1.Pods/Get", GetRequest, get)
    try:
        command = [sys.executable, "-m", "pinnace.scheduler.explaining", "--server", servers.address, "default", "a"]
        environment = {**os.environ, "KUBECONFIG": f"{os.devnull}/nothing"}  # without the user's certificates
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
        said, _ = await process.communicate()
    finally:
        await servers.stop()
    with pytest.raises(Forbidden) as raised:
        parse_explanation(said, b"")
    assert raised.value.refusal == refused
