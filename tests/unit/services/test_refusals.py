"""What a refusal may take of a call's trailers: many peers refuse more than 8 KiB, and tell their user that instead."""

from dataclasses import replace
from urllib.parse import quote

import pytest

from apiserver import errors
from apiserver.errors import MAX_VIOLATIONS
from apiserver.services.handlers import MAX_MESSAGE, cut
from pinnace.api.pods_pb2 import CreatePodBatchRequest
from pinnace.api.resources import PODS
from pinnace.api.status import Violation, encode
from pinnace.api.verbs_pb2 import BatchResponse
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving

ROOM = 8192


@pytest.mark.parametrize("text", ["a", "é", "😀", "%", "\n", "\0"])
def test_whatever_it_says_fits_into_the_trailers(text: str) -> None:
    refusal = errors.invalid(PODS, text * 5000, [Violation(text * 100, text * 200)] * 50)
    told = replace(refusal, message=cut(refusal.message))
    sent = len(quote(told.message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")) + len(encode(told).SerializeToString()) * 4 // 3
    assert sent < ROOM - 500
    assert told.message and told.violations[-1].message.startswith("... and ")


def test_what_fits_is_told_as_it_is() -> None:
    violations = (Violation("spec", "b" * (MAX_VIOLATIONS - 20)),)
    assert errors.invalid(PODS, "a", violations).violations == violations
    assert cut("a" * MAX_MESSAGE) == "a" * MAX_MESSAGE


async def test_of_each_object_of_a_batch_as_much_is_told() -> None:
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
