"""Refusals: their room in a call's trailers (many peers refuse more than 8 KiB, and tell their user that instead), and those of
a server that lacks memory or files."""

import errno
import logging
import mmap
from dataclasses import replace
from urllib.parse import quote

import pytest

from pinnace.api import wire
from pinnace.api.pods_pb2 import CreatePodBatchRequest
from pinnace.api.resources import PODS
from pinnace.api.status import Code, Violation, encode
from pinnace.api.verbs_pb2 import BatchResponse, ListRequest
from pinnace.apiserver import errors
from pinnace.apiserver.errors import MAX_VIOLATIONS, SHORTAGE_LOG_INTERVAL, Rejected, _ShortageLog, to_refusal
from pinnace.apiserver.services import methods
from pinnace.apiserver.services.handlers import MAX_MESSAGE, truncate_message
from pinnace.runtime.logs import CallsRefused
from tests.builders import make_pod
from tests.clock import FakeClock
from tests.logged import logged
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving

ROOM = 8192


@pytest.mark.parametrize("text", ["a", "é", "😀", "%", "\n", "\0"])
def test_whatever_it_says_fits_into_the_trailers(text: str) -> None:
    refusal = errors.invalid(PODS, text * 5000, [Violation(text * 100, text * 200)] * 50)
    told = replace(refusal, message=truncate_message(refusal.message))
    sent = len(quote(told.message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")) + len(encode(told).SerializeToString()) * 4 // 3
    assert sent < ROOM - 500
    assert told.message and told.violations[-1].message.startswith("... and ")


def test_short_message_is_unchanged() -> None:
    violations = (Violation("spec", "b" * (MAX_VIOLATIONS - 20)),)
    assert errors.invalid(PODS, "a", violations).violations == violations
    assert truncate_message("a" * MAX_MESSAGE) == "a" * MAX_MESSAGE


async def test_details_are_limited_per_object_of_a_batch() -> None:
    """A few kilobytes of what is empty are megabytes of what is wrong with it."""
    pod = make_pod("a", namespace=OWN).req(cpu="1").new()
    for _ in range(9_000):
        pod.spec.containers[0].env.add()
    async with serving() as assembly:
        request = CreatePodBatchRequest(items=[pod] * 3)
        answer = await assembly.methods["/pinnace.v1.Pods/CreateBatch"].call(request, Caller(PEOPLE["admin"]))
    (error, *_) = (item.error for item in BatchResponse.FromString(answer).items)
    assert error.message.endswith(" more") and "env[0].name: Required value" in error.message
    assert len(answer) < 3 * 3 * MAX_VIOLATIONS


async def test_list_that_does_not_fit_into_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was INTERNAL, and a traceback of 20 lines for each call."""

    def too_large(*_: object) -> bytes:
        raise MemoryError

    async with serving() as assembly:
        listing = assembly.methods["/pinnace.v1.Pods/List"]
        with monkeypatch.context() as short, pytest.raises(Rejected) as refused:
            short.setattr(wire, "list_response", too_large)
            await listing.call(ListRequest(), Caller(PEOPLE["admin"]))
        assert await listing.call(ListRequest(), Caller(PEOPLE["admin"]))
    refusal = refused.value.refusal
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "InsufficientResources")
    assert refusal.message == "the API server is out of memory; set a smaller limit, or retry later"
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("error", "lack"),
    [
        (MemoryError(), "memory"),
        (OSError(errno.EMFILE, "too many open files"), "file descriptors"),
        (OSError(errno.ENFILE, "too many open files in system"), "file descriptors"),
        (OSError(errno.ENOSPC, "no space left on device"), "disk space"),
        (ExceptionGroup("", [ExceptionGroup("", [MemoryError()])]), "memory"),
    ],
)
def test_shortage(error: Exception, lack: str) -> None:
    read, write = to_refusal(error, "Pods/List"), to_refusal(error, "Pods/Create", writes=True)
    assert read.code is Code.RESOURCE_EXHAUSTED and read.retry_after and f"out of {lack};" in read.message
    assert write.code is Code.UNAVAILABLE and write.reason == "OutcomeUnknown" and write.retry_after is None


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), TimeoutError(), ExceptionGroup("", [ValueError()])])
def test_other_errors_are_bugs(error: Exception) -> None:
    assert to_refusal(error, "Pods/List").code is Code.INTERNAL


async def test_shortages_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    shortages = _ShortageLog(clock)
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            shortages.log_shortage("memory", "Pods/List")
        await clock.advance(SHORTAGE_LOG_INTERVAL)
        shortages.log_shortage("memory", "Pods/List")
    assert logged(caplog, CallsRefused) == [CallsRefused("memory", count, "Pods/List") for count in (1, 5)]


async def test_large_answer_needs_room_for_what_grpc_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of 140 MB under `ulimit -v 1300000` ended the API server: gRPC throws std::bad_alloc."""

    def none_left(_: int, size: int) -> object:
        raise OSError(errno.ENOMEM, "cannot allocate memory")

    async with serving() as assembly:
        listing = assembly.methods["/pinnace.v1.Pods/List"]
        monkeypatch.setattr(mmap, "mmap", none_left)
        assert await listing.call(ListRequest(), Caller(PEOPLE["admin"]))
        monkeypatch.setattr(methods, "LARGE", 1)
        with pytest.raises(Rejected, match="out of memory"):
            await listing.call(ListRequest(), Caller(PEOPLE["admin"]))
