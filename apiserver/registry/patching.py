"""What a patch makes of an object: what a client would have sent with an update, had it read this very version.

What is no patch is a bad request; one that does not apply to this object is Invalid, as in Kubernetes: to another it may.
"""

from collections.abc import Callable
from typing import TypeVar

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.registry.validation.violations import IMMUTABLE, invalid
from pinnace.api.codec import CodecError, revised, to_dict
from pinnace.api.patch import PatchError, parse, patched
from pinnace.api.resources import PODS, Object, Resource
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import PatchRequest

T = TypeVar("T", bound=Object)

STATUS = "status"
RESIZE = "resize"
"""Of pods only."""
_TYPES = (PatchRequest.MERGE, PatchRequest.STRATEGIC_MERGE, PatchRequest.JSON)


def patching(resource: Resource[T], request: PatchRequest) -> Callable[[T], T]:
    """What the patch does: a new object from an old one, which stays as it is. It raises Rejected, as this does."""
    if not request.name:
        raise Rejected(errors.bad_request("name: which one? A patch needs a name"))
    if request.type not in _TYPES:
        raise Rejected(errors.bad_request("type: expected MERGE, STRATEGIC_MERGE or JSON"))
    patchable = (STATUS, RESIZE) if resource is PODS else (STATUS,)
    if request.subresource not in ("", *patchable):
        known = " and ".join(f'"{each}"' for each in patchable)
        raise Rejected(errors.bad_request(f'subresource: "{request.subresource[:32]}" cannot be patched; expected {known}'))
    try:
        patch = parse(request.patch, request.type)
    except PatchError as error:
        raise Rejected(errors.bad_request(f"patch: {error}")) from None

    def apply(old: T) -> T:
        try:
            form = to_dict(old)
            new = revised(resource, old, form, patched(form, request.type, patch))
        except PatchError as error:
            raise Rejected(errors.invalid(resource, request.name, [Violation("patch", str(error))])) from None
        except CodecError as error:
            wrong = [Violation(problem.field, problem.message) for problem in error.problems]
            raise Rejected(errors.invalid(resource, request.name, wrong)) from None
        if not resource.namespaced:
            new.metadata.namespace = ""
        moved = [field for field in ("name", "namespace") if getattr(new.metadata, field) != getattr(old.metadata, field)]
        if moved:
            wrong = [invalid(f"metadata.{field}", getattr(new.metadata, field), IMMUTABLE) for field in moved]
            raise Rejected(errors.invalid(resource, request.name, wrong))
        return new

    return apply
