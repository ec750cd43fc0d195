"""What an answer must be like, whatever was asked.

Sources: the comments of proto/, and https://grpc.io/docs/guides/status-codes/
"""

from collections.abc import Mapping

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from grpc import StatusCode

from pinnace.api.status import Code, decode
from pinnace.api.verbs_pb2 import BatchItem, BatchResponse
from pinnace.apiserver.server import MAX_REQUEST
from tests.fuzz.calls import Answer
from tests.fuzz.shots import PATIENCE, Shot, Who

MARGIN = 3.0
"""Seconds after the deadline at which we must know the outcome; machines are busy."""
HEADERS = 4000
"""Bytes of metadata that every server takes."""
_OPEN = ("/pinnace.v1.Authorization/Self", "/pinnace.v1.Version/", "/grpc.")
"""What everybody may ask."""
_ANY = {StatusCode.OK, StatusCode.INVALID_ARGUMENT, StatusCode.PERMISSION_DENIED}
_BEHIND = {StatusCode.UNAVAILABLE}
"""Of reads: the revision is not reached yet; or, for one who hardly waits, not even known. No other reason counts."""
_CHANGING = {StatusCode.NOT_FOUND, StatusCode.ABORTED}
_READING = {StatusCode.OUT_OF_RANGE, *_BEHIND}
_OF_A_KUBELET = {StatusCode.ABORTED, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION, *_BEHIND}
EXPECTED: Mapping[str, set[StatusCode]] = {
    "Create": {StatusCode.ALREADY_EXISTS, StatusCode.NOT_FOUND},
    "Get": {StatusCode.NOT_FOUND, *_BEHIND},
    "List": _READING,
    "Watch": {StatusCode.ABORTED, StatusCode.FAILED_PRECONDITION, *_READING},  # the latter: of another history
    "Update": _CHANGING,
    "UpdateStatus": _CHANGING,
    "Finalize": _CHANGING,
    "UpdateResize": _CHANGING,
    "UpdateEphemeralContainers": _CHANGING,
    "Patch": _CHANGING,
    "GetScale": {StatusCode.NOT_FOUND, *_BEHIND},
    "UpdateScale": _CHANGING,
    "PatchScale": _CHANGING,
    "Delete": _CHANGING,
    "DeleteCollection": _READING,
    "Bind": {StatusCode.FAILED_PRECONDITION, *_CHANGING},
    "Evict": {StatusCode.FAILED_PRECONDITION, StatusCode.RESOURCE_EXHAUSTED, *_CHANGING},
    "Logs": _OF_A_KUBELET,
    "Exec": _OF_A_KUBELET,
    "Attach": _OF_A_KUBELET,
    "PortForward": _OF_A_KUBELET,
    "Transfer": _CHANGING,
    "Check": {StatusCode.NOT_FOUND},
    "ServerReflectionInfo": {StatusCode.DEADLINE_EXCEEDED},  # a stream that says nothing
}
"""By the method's name: how its calls may end, beside _ANY."""
_GRPCS = {StatusCode.OK, StatusCode.UNIMPLEMENTED, StatusCode.DEADLINE_EXCEEDED, StatusCode.RESOURCE_EXHAUSTED}
"""What gRPC itself says, without details."""
_ITEMS = {
    Code.ALREADY_EXISTS,
    Code.NOT_FOUND,
    Code.ABORTED,
    Code.INVALID_ARGUMENT,
    Code.PERMISSION_DENIED,
    Code.FAILED_PRECONDITION,
}


def judge(shot: Shot, answer: Answer, method: MethodDescriptor | None) -> list[str]:
    """What is wrong with the answer."""
    if answer.seconds > shot.deadline + MARGIN:
        return [f"the answer took {answer.seconds:.1f} s, with a deadline of {shot.deadline:g} s"]
    if answer.code is None or _turned_away(shot, answer):
        return []
    if answer.code not in _expected(shot, method):
        return [f"{answer.code.name} is no answer of this method's: {answer.message[:300]}"]
    return [*_explained(shot, answer), *_permitted(shot, answer, method), *_items(answer, method)]


def _expected(shot: Shot, method: MethodDescriptor | None) -> set[StatusCode]:
    expected = _ANY | EXPECTED.get(method.name, set()) if method is not None else {StatusCode.UNIMPLEMENTED}
    if shot.who is Who.STRANGER:
        expected = {StatusCode.UNAUTHENTICATED}
    if shot.size > MAX_REQUEST - 100:
        expected = {*expected, StatusCode.RESOURCE_EXHAUSTED}
    if _heavy(shot):
        expected = {*expected, StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE}
    if shot.deadline < PATIENCE:
        expected = {*expected, StatusCode.DEADLINE_EXCEEDED, *_BEHIND}
    return expected


def _explained(shot: Shot, answer: Answer) -> list[str]:
    """Every refusal of ours says why, in a word for machines; what is invalid, where."""
    refusal = answer.refusal
    if answer.code in _GRPCS or (answer.code is StatusCode.UNAVAILABLE and _heavy(shot)):
        return []
    if refusal is None:
        return ["a refusal without details"]
    if not refusal.reason or not refusal.message:
        return ["a refusal without a reason"]
    if refusal.reason == "Invalid" and not refusal.violations:
        return ["an object is invalid, and nobody says where"]
    hurried = shot.deadline < PATIENCE and refusal.reason == "StorageUnavailable"
    if answer.code is StatusCode.UNAVAILABLE and refusal.reason != "CacheBehind" and not hurried:
        return [f"UNAVAILABLE for {refusal.reason}: {refusal.message[:300]}"]
    return []


def _turned_away(shot: Shot, answer: Answer) -> bool:
    """Whoever sends more than a busy server keeps waiting is told when to come again; but first he says who he is."""
    refusal = answer.refusal
    return (
        shot.who is not Who.STRANGER
        and refusal is not None
        and refusal.reason == "TooManyRequests"
        and refusal.retry_after is not None
    )


def _heavy(shot: Shot) -> bool:
    """Is there more metadata than a server need take? It may cost the connection."""
    return sum(len(key) + len(value) + 32 for key, value in shot.metadata) > HEADERS


def _permitted(shot: Shot, answer: Answer, method: MethodDescriptor | None) -> list[str]:
    """Who has no role gets nothing, whatever he sends. (An empty batch is nothing.)"""
    nothing = shot.who is not Who.NOBODY or not answer.response or shot.what.path.startswith(_OPEN)
    if nothing or method is None or method.output_type is BatchResponse.DESCRIPTOR:
        return []
    return ["who has no role was given an answer"]


def _items(answer: Answer, method: MethodDescriptor | None) -> list[str]:
    """Each item of a batch ends as a single call might."""
    if method is None or method.output_type is not BatchResponse.DESCRIPTOR:
        return []
    try:
        items = BatchResponse.FromString(answer.response).items
    except DecodeError:
        return ["the response cannot be read"]
    return [problem for item in items if (problem := _item(item)) is not None][:3]


def _item(item: BatchItem) -> str | None:
    if not item.HasField("error"):
        return None
    refusal = decode(item.error)
    if refusal.code not in _ITEMS or not refusal.reason:
        return f"an item ends with {refusal.code.name} ({refusal.reason}): {refusal.message[:300]}"
    return None
