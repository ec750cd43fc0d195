"""Calls in a history: the objects of a call and its possible outcomes."""

import pytest

from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import BindBatchRequest, CreatePodBatchRequest, UpdatePodRequest
from pinnace.api.resources import NODES, PODS
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem, BatchResponse, GetRequest
from pinnace.client.errors import ApiError, from_refusal, outcome_unknown, timed_out, unavailable_error
from pinnace.client.resource import delete_request
from pinnace.history.records import CallItem, Outcome, labels_digest, object_digest
from pinnace.verification.chaos.clients import classify_outcome, list_requested_items, list_returned_items, parse_method
from tests.builders import make_pod

KEY = "/registry/pods/default/a"


def test_method_is_parsed_to_verb_and_resource() -> None:
    assert parse_method("/pinnace.v1.Pods/BindBatch") == ("bind", PODS)
    assert parse_method("/pinnace.v1.Nodes/UpdateStatusBatch") == ("update_status", NODES)
    assert parse_method("/pinnace.v1.Elections/Get") is None
    assert parse_method("/pinnace.v1.Pods/Watch") is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (unavailable_error("cannot connect"), "refused"),
        (timed_out("no connection in time"), "refused"),
        (from_refusal(Refusal(Code.UNAVAILABLE, "StorageUnavailable", "etcd: no answer", retry_after=0.1)), "refused"),
        (from_refusal(Refusal(Code.ABORTED, "Conflict", "stale")), "refused"),
        (from_refusal(Refusal(Code.FAILED_PRECONDITION, "Fenced", "stand down")), "refused"),
        (from_refusal(Refusal(Code.UNAVAILABLE, "OutcomeUnknown", "perhaps")), "unknown"),
        (outcome_unknown(unavailable_error("Socket closed")), "unknown"),
        (from_refusal(Refusal(Code.INTERNAL, "InternalError", "a bug")), "unknown"),
        (from_refusal(Refusal(Code.RESOURCE_EXHAUSTED, "", "received message larger than max")), "unknown"),
    ],
)
def test_only_calls_that_were_certainly_not_executed_are_refused(error: ApiError, outcome: Outcome) -> None:
    assert classify_outcome(error) == outcome


def test_request_contains_the_keys_of_its_objects() -> None:
    assert list_requested_items("get", PODS, GetRequest(name="a")) == (CallItem(KEY),)
    assert list_requested_items("get", NODES, GetRequest(name="n")) == (CallItem("/registry/nodes/n"),)
    assert list_requested_items("delete", PODS, delete_request("a", "default", uid="u", resource_version="7")) == (
        CallItem(KEY, uid="u", expected=7),
    )
    pod = make_pod("a").version(7).build()
    assert list_requested_items("update", PODS, UpdatePodRequest(object=pod), "refused") == (
        CallItem(KEY, uid=pod.metadata.uid, outcome="refused", expected=7, labels=""),
    )


def test_response_contains_revision_and_digest() -> None:
    pod = make_pod("a").version(9).build()
    request = UpdatePodRequest(object=make_pod("a").version(7).build())
    assert list_returned_items("update", PODS, request, pod) == (
        CallItem(KEY, 9, pod.metadata.uid, object_digest(pod), expected=7, labels=""),
    )


def test_pod_write_records_the_wanted_labels() -> None:
    wanted, result = make_pod("a").label("x", "1").label("y", "2").build(), make_pod("a").label("x", "old").version(9).build()
    (item,) = list_returned_items("update", PODS, UpdatePodRequest(object=wanted), result)
    assert item.labels == labels_digest({"y": "2", "x": "1"}) != labels_digest(result.metadata.labels)
    request = CreatePodBatchRequest(items=[wanted])
    (item,) = list_returned_items("create", PODS, request, BatchResponse(items=[BatchItem(name="a", resourceVersion="12")]))
    assert item.labels == labels_digest(wanted.metadata.labels)
    (item,) = list_requested_items("delete", PODS, delete_request("a", "default"))
    assert item.labels is None


def test_batch_items_have_separate_outcomes() -> None:
    request = BindBatchRequest()
    for name in ("a", "b", "c"):
        request.items.add(metadata=ObjectMeta(namespace="default", name=name, uid=f"uid-{name}"))
    fenced = encode(Refusal(Code.FAILED_PRECONDITION, "Fenced", "stand down"))
    perhaps = encode(Refusal(Code.UNAVAILABLE, "OutcomeUnknown", "perhaps"))
    response = BatchResponse(
        items=[BatchItem(name="a", uid="uid-a", resourceVersion="12"), BatchItem(error=fenced), BatchItem(error=perhaps)]
    )
    assert list_returned_items("bind", PODS, request, response) == (
        CallItem(KEY, 12, "uid-a"),
        CallItem("/registry/pods/default/b", uid="uid-b", outcome="refused"),
        CallItem("/registry/pods/default/c", uid="uid-c", outcome="unknown"),
    )


def test_batch_create_without_a_response_has_keys() -> None:
    request = CreatePodBatchRequest(items=[make_pod("a", "load").build()])
    (item,) = list_requested_items("create", PODS, request, "unknown")
    assert (item.key, item.outcome) == ("/registry/pods/load/a", "unknown")
