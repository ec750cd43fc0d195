"""What a call of the client library says, in a history's words. Pure.

refused   an API server of ours said no (its refusals have a reason), or nothing was ever sent
unknown   everything else that is no answer: a lost connection, a deadline, a bug of the server, a call that was cancelled
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, PODS, Resource
from pinnace.api.verbs_pb2 import BatchResponse
from pinnace.check.facts import digest, labels_digest
from pinnace.check.history import Item, Outcome, Verb
from pinnace.client.errors import ApiError, Internal, OutcomeUnknown, Unavailable, from_status

_RESOURCES: dict[str, Resource[Any]] = {resource.service: resource for resource in ALL}
_VERBS: dict[str, Verb] = {
    "Create": "create",
    "CreateBatch": "create",
    "Get": "get",
    "List": "list",
    "Update": "update",
    "UpdateStatus": "update_status",
    "UpdateStatusBatch": "update_status",
    "Delete": "delete",
    "DeleteBatch": "delete",
    "BindBatch": "bind",
}


def parse(method: str) -> tuple[Verb, Resource[Any]] | None:
    """Of "/pinnace.v1.Pods/CreateBatch": create, pods. None for what is no verb of a resource."""
    service, _, rpc = method.removeprefix("/").partition("/")
    resource, verb = _RESOURCES.get(service), _VERBS.get(rpc)
    return (verb, resource) if resource and verb else None


def outcome_of(error: ApiError) -> Outcome:
    """Of a call that was sent once, or of an item of a batch."""
    if isinstance(error, OutcomeUnknown | Internal):
        return "unknown"
    return "refused" if error.reason or isinstance(error, Unavailable) else "unknown"


def asked(verb: Verb, resource: Resource[Any], request: Any, outcome: Outcome = "ok") -> tuple[Item, ...]:
    """The objects that a request names."""
    named = _named(verb)
    says_labels = resource is PODS and verb in ("create", "update")

    def item(part: Any) -> Item:
        namespace, name, uid, version = named(part)
        labels = labels_digest(part.metadata.labels) if says_labels else None
        key = resource.key(namespace or DEFAULT_NAMESPACE, name)
        return Item(key, uid=uid, outcome=outcome, expected=int(version or 0), labels=labels)

    return tuple(map(item, _parts(verb, request)))


def answered(verb: Verb, resource: Resource[Any], request: Any, response: Any) -> tuple[Item, ...]:
    """The objects of an answer. Those of a batch are told by name, uid and revision only."""
    if verb == "list":
        return tuple(_seen(resource, obj) for obj in response.items)
    wanted = asked(verb, resource, request)
    if not isinstance(response, BatchResponse):
        return (replace(_seen(resource, response), expected=wanted[0].expected, labels=wanted[0].labels),)
    return tuple(
        Item(
            item.key,
            revision=int(told.resourceVersion or 0),
            uid=told.uid or item.uid,
            outcome=outcome_of(from_status(told.error)) if told.HasField("error") else "ok",
            expected=item.expected,
            labels=item.labels,
        )
        for item, told in zip(wanted, response.items, strict=True)
    )


def _seen(resource: Resource[Any], obj: Any) -> Item:
    metadata = obj.metadata
    return Item(resource.key_of(obj), int(metadata.resourceVersion or 0), metadata.uid, digest(obj))


def _parts(verb: Verb, request: Any) -> Iterable[Message]:
    """The parts of a request that name one object each."""
    if verb == "list":
        return ()
    fields = request.DESCRIPTOR.fields_by_name
    if "items" in fields:
        parts: Iterable[Message] = request.items
        return parts
    return (request.object,) if "object" in fields else (request,)


def _named(verb: Verb) -> Callable[[Any], tuple[str, str, str, str]]:
    """How a part says which object it means: namespace, name, uid, and the version that it depends on."""
    if verb == "get":
        return lambda request: (request.namespace, request.name, "", "")
    if verb == "delete":
        return lambda request: (
            request.namespace,
            request.name,
            request.options.preconditions.uid,
            request.options.preconditions.resourceVersion,
        )
    return lambda obj: (obj.metadata.namespace, obj.metadata.name, obj.metadata.uid, obj.metadata.resourceVersion)
