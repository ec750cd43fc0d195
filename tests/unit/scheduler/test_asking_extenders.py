"""Asking extenders: who is asked what, and what is made of the answers."""

import logging
from typing import Any

import numpy as np
import pytest

from pinnace.runtime.logs import ExtenderIgnored
from pinnace.scheduler.extenders.extender import Extender, query_extenders
from pinnace.scheduler.extenders.interface import ExtenderError, ExtenderRejections, ExtenderResult, FilterResponse
from pinnace.scheduler.framework import Diagnosis, FilterResult
from tests.builders import PodBuilder, make_node, make_pod
from tests.logged import logged
from tests.unit.scheduler.fake_extender import URL, FakeTransport, failing
from tests.unit.scheduler.pods import cache_of, framework, info

NODES = [make_node(f"n{i}").build() for i in range(3)]
POD = info(make_pod("a"))


async def ask(*extenders: Extender) -> ExtenderResult:
    return await query_extenders(extenders, POD, NODES)


async def test_each_filters_what_those_before_it_left() -> None:
    first, second = FakeTransport(filter=["n0", "n1"]), FakeTransport(filter=["n1"], prioritize={"n1": 5})
    third = FakeTransport(filter=[])
    extender_result = await ask(first.extender(url="http://1"), second.extender(url="http://2"))
    assert extender_result.asked == {"n0", "n1", "n2"} and extender_result.scores == {}, "one node is left: it needs no score"
    assert [(objection.extender, set(objection.reasons)) for objection in extender_result.objections] == [
        ("http://1", {"n2"}),
        ("http://2", {"n0"}),
    ]
    assert second.asked == [("filter", ["n0", "n1"])]
    late = FakeTransport(filter=["n0"])
    assert len((await ask(third.extender(), late.extender())).objections) == 1 and not late.asked


async def test_reasons() -> None:
    answer = FilterResponse([], failed={"n0": "no", "n1": "no"}, unresolvable={"n1": "never", "other": "never"})
    [objections] = (await ask(FakeTransport(filter=answer).extender())).objections
    silent = f"node(s) were filtered out by extender {URL}"
    assert objections == ExtenderRejections(URL, {"n0": "no", "n1": "never", "n2": silent}, frozenset({"n1"}))


async def test_scores_are_scaled_weighed_and_added() -> None:
    liking = FakeTransport(prioritize={"n0": 10, "n1": 3}).extender(weight=2)
    other = FakeTransport(prioritize={"n1": 1, "n2": 0}).extender()
    assert (await ask(liking, other)).scores == {"n0": 200, "n1": 70, "n2": 0}


async def test_scores_that_cannot_be_had_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    broken, wrong = FakeTransport(prioritize=failing("prioritize")), FakeTransport(prioritize={"n0": 11})
    extenders = broken.extender(), wrong.extender(), FakeTransport(prioritize={"n0": 1}).extender()
    with caplog.at_level(logging.WARNING):
        assert (await ask(*extenders)).scores == {"n0": 10}
        assert (await ask(*extenders)).scores == {"n0": 10}
    assert [(item.verb, item.reason) for item in logged(caplog, ExtenderIgnored)] == [
        ("prioritize", f"failed prioritize with extender at URL {URL}/prioritize, code 500"),
        ("prioritize", f"failed prioritize with extender at URL {URL}: scores must be from 0 to 10, got 11 for node n0"),
    ], "each once, not for each pod"


async def test_failure_to_filter_counts_unless_it_is_ignorable() -> None:
    broken = FakeTransport(filter=failing("filter"))
    with pytest.raises(ExtenderError, match="code 500"):
        await ask(broken.extender())
    extender_result = await ask(broken.extender(ignorable=True), FakeTransport(filter=["n0"]).extender(url="http://2"))
    assert [set(objection.reasons) for objection in extender_result.objections] == [{"n1", "n2"}]


async def test_answer_about_other_nodes_is_none() -> None:
    with pytest.raises(ExtenderError, match='claims a filtered node "n9" which is not found in the input node list'):
        await ask(FakeTransport(filter=["n9"]).extender())


@pytest.mark.parametrize(
    ("pod", "interested"),
    [
        (make_pod("a").req(cpu=1), False),
        (make_pod("a").container({"example.com/gpu": 1}), True),
        (make_pod("a").container({"example.com/gpu": 0}), True),
        (make_pod("a").container({"example.com/other": 1}), False),
        (make_pod("a").init(**{"example.com/gpu": 1}), True),
    ],
)
def test_only_pods_that_ask_for_a_managed_resource_are_of_interest(pod: PodBuilder, interested: bool) -> None:
    assert FakeTransport().extender(managed=["example.com/gpu"]).is_interested_in(info(pod)) is interested
    assert FakeTransport().extender().is_interested_in(info(pod))


class TestOpinion:
    TABLE = cache_of(*(make_node(f"n{i}") for i in range(4))).nodes

    def diagnosis(self, extender_result: ExtenderResult, *refused: int) -> Diagnosis:
        mask = np.isin(np.arange(4), refused)
        return extender_result.add_to_diagnosis(Diagnosis(4, [("Plugin", FilterResult.refusing(mask, "full"))]), self.TABLE)

    def test_counts_as_the_verdict_of_further_filters(self) -> None:
        extender_result = ExtenderResult(
            frozenset({"n0", "n1", "n2", "n3"}), [ExtenderRejections(URL, {"n0": "no", "n1": "no", "n2": "never"})]
        )
        diagnosis = self.diagnosis(extender_result, 0)
        assert diagnosis.feasible.tolist() == [False, False, False, True]
        assert diagnosis.message == "0/4 nodes are available: 1 full, 1 never, 1 no."
        assert diagnosis.plugins == {"Plugin", URL}

    def test_nodes_that_it_is_not_about_are_not_chosen(self) -> None:
        diagnosis = self.diagnosis(ExtenderResult(frozenset({"n0", "gone"}), [ExtenderRejections(URL, {"gone": "no"})]), 0)
        assert not diagnosis.feasible.any()
        assert diagnosis.message == "0/4 nodes are available: 1 full, 3 node(s) were added while extenders were called."

    def test_knows_where_preemption_cannot_help(self) -> None:
        about: Any = {"n0": "no", "n1": "never"}
        diagnosis = self.diagnosis(ExtenderResult(frozenset(about), [ExtenderRejections(URL, about, frozenset({"n1"}))]))
        assert framework().curable_nodes(diagnosis).tolist() == [True, False, True, True]

    def test_scores_are_by_row(self) -> None:
        assert ExtenderResult(frozenset(), scores={"n2": 5.0, "gone": 1.0}).sum_scores(self.TABLE).tolist() == [0, 0, 5, 0]
