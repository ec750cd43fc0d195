"""A short run of the fuzzer, and that it would tell what it is there to find."""

import random
from pathlib import Path

import pytest
from grpc import StatusCode

from pinnace.api.status import Code, Refusal, Violation, encode
from pinnace.api.verbs_pb2 import BatchResponse
from pinnace.apiserver.errors import Rejected
from pinnace.verification.chaos.hostile_pods import HOSTILE
from tests.conftest import EtcdServer, wipe
from tests.fuzz import sound
from tests.fuzz.calls import Answer
from tests.fuzz.inputs import CORPUS, FOUND, Input, hostile, kept, read, write
from tests.fuzz.judge import judge
from tests.fuzz.live import live, problems_in
from tests.fuzz.offspring import Offspring
from tests.fuzz.run import Run
from tests.fuzz.shots import How, Shot, Shots, Who
from tests.unit.auth.matrix import PEOPLE, Caller, serving

FEW = 300
METHODS = sound.methods()
PODS = "/pinnace.v1.Pods/"
BUSY = Answer(StatusCode.UNAVAILABLE, 0.1, "no", Refusal(Code.UNAVAILABLE, "TooManyRequests", "no", retry_after=1))


async def test_server_does_not_mind(tmp_path: Path, etcd: EtcdServer) -> None:
    await wipe(etcd.endpoint)
    async with live(tmp_path, etcd.endpoint) as server:
        report = await Run(server, 0, lambda line: None).play(len(kept()) + FEW)
    assert report.problems == [], str(report)
    assert report.shots == len(kept()) + FEW
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"} <= set(report.codes)


def shot(verb: str, who: Who = Who.ADMIN, deadline: float = 10.0) -> Shot:
    return Shot("1:1", How.CALL, who, Input(PODS + verb, (b"",)), deadline)


def refused(code: StatusCode, *violations: Violation, reason: str = "Invalid") -> Answer:
    return Answer(code, 0.1, "no", Refusal(Code(code.value[0]), reason, "no", violations))


def items(code: Code) -> Answer:
    response = BatchResponse()
    response.items.add(error=encode(Refusal(code, "Why", "no")))
    return Answer(StatusCode.OK, 0.1, response=response.SerializeToString())


@pytest.mark.parametrize(
    ("sent", "answer", "problem"),
    [
        (shot("Get"), refused(StatusCode.INTERNAL), "INTERNAL is no answer"),
        (shot("Get"), Answer(StatusCode.UNKNOWN, 0.1), "UNKNOWN is no answer"),
        (shot("Get"), refused(StatusCode.ALREADY_EXISTS), "ALREADY_EXISTS is no answer"),
        (shot("Get"), Answer(StatusCode.DEADLINE_EXCEEDED, 10.0), "DEADLINE_EXCEEDED is no answer"),
        (shot("Get", deadline=0.1), Answer(StatusCode.DEADLINE_EXCEEDED, 9.0), "took 9.0 s"),
        (shot("Create"), Answer(StatusCode.INVALID_ARGUMENT, 0.1), "without details"),
        (shot("Create"), refused(StatusCode.INVALID_ARGUMENT, reason=""), "without a reason"),
        (shot("Create"), refused(StatusCode.INVALID_ARGUMENT), "nobody says where"),
        (shot("List"), refused(StatusCode.UNAVAILABLE, reason="NotReady"), "UNAVAILABLE for NotReady"),
        (shot("CreateBatch"), items(Code.INTERNAL), "an item ends with INTERNAL"),
        (shot("List", Who.NOBODY), Answer(StatusCode.OK, 0.1, response=b"a"), "was given an answer"),
        (shot("List", Who.STRANGER), Answer(StatusCode.OK, 0.1), "OK is no answer"),
        (shot("List", Who.STRANGER), BUSY, "UNAVAILABLE is no answer"),
        (shot("Create"), BUSY._replace(refusal=Refusal(Code.UNAVAILABLE, "TooManyRequests", "no")), "UNAVAILABLE is no answer"),
    ],
)
def test_forbidden_response_is_reported(sent: Shot, answer: Answer, problem: str) -> None:
    (told,) = judge(sent, answer, METHODS[sent.what.path])
    assert problem in told


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (shot("Get"), Answer(StatusCode.OK, 0.1)),
        (shot("Get"), refused(StatusCode.NOT_FOUND, reason="NotFound")),
        (shot("List"), refused(StatusCode.UNAVAILABLE, reason="CacheBehind")),
        (shot("Create"), refused(StatusCode.INVALID_ARGUMENT, Violation("spec", "no"))),
        (shot("Create"), BUSY),
        (shot("Get", deadline=0.1), Answer(StatusCode.DEADLINE_EXCEEDED, 0.1)),
        (shot("CreateBatch"), items(Code.ALREADY_EXISTS)),
        (shot("Watch"), Answer(None, 0.1)),
    ],
)
def test_allowed_answer_is_no_problem(sent: Shot, answer: Answer) -> None:
    assert judge(sent, answer, METHODS[sent.what.path]) == []


def test_forbidden_log_line_is_reported() -> None:
    begin = "2026-01-31T12:00:00.000Z"
    bug, forged = (
        f"{begin} E apiserver a.b: a bug\nTraceback:\n  File\nValueError: no\n",
        f"{begin} I apiserver a.b: eve\nsaid so\n",
    )
    fine = f"{begin} W apiserver a.b: slow\nE1231 12:00:00.0 1 handshake.cc:1] from gRPC\n"
    assert problems_in(fine + fine) == []
    told = problems_in(bug + forged + fine)
    assert told == [
        f"in the log: {begin} E apiserver a.b: a bug ... ValueError: no",
        "in the log, and no line of a log: 'said so'",
    ]


async def test_fuzzed_requests_are_valid_before_mutation() -> None:
    """A hostile field in a request that is refused for another reason finds nothing."""
    wrong = {}
    async with serving() as assembly:
        assert assembly.methods.keys() == METHODS.keys()
        for path, method in assembly.methods.items():
            if not method.server_streaming:
                (message,) = Offspring(()).sound(random.Random(1), path).messages
                try:
                    await method.call(method.parse(message), Caller(PEOPLE["admin"]))
                except Rejected as rejected:
                    if rejected.refusal.code is Code.INVALID_ARGUMENT:
                        wrong[path] = rejected.refusal.message
    assert wrong == {}


def test_number_of_a_seed_is_always_the_same() -> None:
    first, again = (Shots(7, kept()) for _ in range(2))
    assert [first.shot(number) for number in range(50)] == [again.shot(number) for number in range(50)]
    assert first.shot(1) != Shots(8, kept()).shot(1)


def test_corpus_is_what_was_kept(tmp_path: Path) -> None:
    inputs = [Input(f"{PODS}Get", (b"\0\xff",)), Input("/pinnace.v1.Nodes/Heartbeat", (b"a", b"")), Input("/a.B/C", ())]
    write(inputs, tmp_path)
    assert sorted(read(tmp_path)) == sorted(inputs)


def test_corpus_is_small_and_of_all_services() -> None:
    assert sum(file.stat().st_size for file in (*CORPUS.iterdir(), *FOUND.iterdir())) < 300_000
    assert {path.rpartition("/")[0] for path in METHODS} <= {item.path.rpartition("/")[0] for item in read(CORPUS)}


def test_each_kind_of_hostile_pod_is_sent() -> None:
    sent = {item.messages for item in kept() if item.path == f"{PODS}Create"}
    assert {hostile(kind).messages for kind in HOSTILE} <= sent
    assert len({hostile(kind).messages for kind in HOSTILE}) == len(HOSTILE)
