"""The subresource `scale` of Deployments and ReplicaSets: their replicas as a Scale of autoscaling/v1.

A Scale is derived from the object in each call. A patch applies to the Scale of the latest version. The uid and resourceVersion
of the new Scale are preconditions, so a stale Scale does not overwrite the replicas of another client.

Source: pkg/registry/apps/deployment/storage/storage.go of Kubernetes 1.36, which also defines the messages.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.codec import IGNORE, STRICT, decode_valid_part, to_dict
from pinnace.api.patch import PatchError, apply_any_patch, parse
from pinnace.api.resources import Object
from pinnace.api.selectors import from_message
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import GetRequest, PatchRequest, UpdateScaleRequest
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import UPDATE, WriteAttributes
from pinnace.apiserver.registry.mutation import ObjectVersion
from pinnace.apiserver.registry.store import require_single_outcome
from pinnace.apiserver.registry.strategy import add_warnings
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.services.resource import ResourceService

T = TypeVar("T", bound=Object)
API_VERSION, KIND, SCALE = "autoscaling/v1", "Scale", "scale"
_TYPE = {"apiVersion": API_VERSION, "kind": KIND}
_METADATA = ("name", "namespace", "uid", "resourceVersion")


class ScaledService(ResourceService[T]):
    async def get_scale(self, request: GetRequest, context: Context) -> bytes:
        return self._encode_scale(await self.get(request, context))

    async def update_scale(self, request: UpdateScaleRequest, context: Context) -> bytes:
        metadata = request.object.metadata
        return await self._update_scale(request, "update", metadata, lambda old: request.object, context)

    async def patch_scale(self, request: PatchRequest, context: Context) -> bytes:
        return await self._update_scale(request, "patch", request, self._scale_patcher(request), context)

    async def _update_scale(
        self, request: Any, verb: str, named: Any, change: Callable[[Scale], Scale], context: Context
    ) -> bytes:
        """Replace the replicas. `change` returns the new Scale for the present one."""
        by = self.write_request(request, context)

        def request_of(present: ObjectVersion[T]) -> WriteAttributes:
            old = self._read_scale_for_update(present.obj)
            new = Scale()
            new.CopyFrom(change(old))
            return WriteAttributes(by, UPDATE, self._resource, new, old, SCALE, (API_VERSION, KIND))

        writing = self.store.modify_reviewed(
            named.namespace, named.name, SCALE, request_of, lambda present, scale: self._apply_scale(present.obj, scale), by
        )
        written = require_single_outcome(await self.audit_write(by, verb, "scale", [named], writing)).encoded
        return self._encode_scale(await self._convert_to_served_version(written))

    async def _convert_to_served_version(self, data: bytes) -> bytes:
        """Return a stored object in the version of responses. Raises Rejected."""
        return data

    def _apply_scale(self, obj: T, scale: Scale) -> T:
        """Return the object with the replicas, and the preconditions of the Scale. Raises Rejected."""
        replicas = scale.spec.replicas
        if replicas < 0:
            violation = Violation("spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
            raise Rejected(errors.invalid(self._resource, obj.metadata.name, [violation]))
        new: Any = self._resource.message()
        new.CopyFrom(obj)
        self._set_replicas(new, replicas)
        new.metadata.uid, new.metadata.resourceVersion = scale.metadata.uid, scale.metadata.resourceVersion
        result: T = new
        return result

    def _set_replicas(self, obj: Any, replicas: int) -> None:
        """Set the replicas in place. Raises Rejected."""
        obj.spec.replicas = replicas

    def _scale_patcher(self, request: PatchRequest) -> Callable[[Scale], Scale]:
        """Return a function that returns the patched Scale. Both functions raise Rejected."""
        if request.type not in (PatchRequest.MERGE, PatchRequest.STRATEGIC_MERGE, PatchRequest.JSON) or request.subresource:
            raise Rejected(errors.bad_request("type: expected MERGE, STRATEGIC_MERGE or JSON, without a subresource"))
        try:
            patch = parse(request.patch, request.type)
        except PatchError as error:
            raise Rejected(errors.bad_request(f"patch: {error}")) from None

        def apply(old: Scale) -> Scale:
            try:
                form = apply_any_patch(_TYPE | to_dict(old), request.type, patch)
            except PatchError as error:
                raise Rejected(errors.invalid(self._resource, request.name, [Violation("patch", str(error))])) from None
            return self._decode_scale(form, old, request)

        return apply

    def _decode_scale(self, form: Any, old: Scale, request: PatchRequest) -> Scale:
        """Decode a patched Scale. Raises Rejected."""
        if not isinstance(form, Mapping) or any(form.get(name) != value for name, value in _TYPE.items()):
            raise Rejected(errors.bad_request(f"the patched object is not a {KIND} of {API_VERSION}"))
        scale, problems = decode_valid_part(Scale, {name: value for name, value in form.items() if name not in _TYPE})
        if wrong := [Violation(problem.field, problem.message) for problem in problems if not problem.unknown]:
            raise Rejected(errors.invalid(self._resource, request.name, wrong))
        unknown = [f'unknown field "{problem.field}"' for problem in problems]
        validation = request.options.fieldValidation or request.options.defaultFieldValidation
        if unknown and validation == STRICT:
            raise Rejected(errors.bad_request(f"strict decoding error: {', '.join(unknown)}"))
        if validation != IGNORE:
            add_warnings(unknown)
        name, namespace = scale.metadata.name, scale.metadata.namespace
        if name != old.metadata.name:
            message = f"the name of the object ({name}) does not match the name on the URL ({old.metadata.name})"
            raise Rejected(errors.bad_request(message))
        if namespace != old.metadata.namespace:
            place = f"the namespace on the request ({old.metadata.namespace})"
            raise Rejected(errors.bad_request(f"the namespace of the object ({namespace}) does not match {place}"))
        return scale

    def _encode_scale(self, data: bytes) -> bytes:
        message: Any = self._resource.message
        return self._scale_of(message.FromString(data)).SerializeToString()

    def _read_scale_for_update(self, obj: T) -> Scale:
        """Return the Scale that a write changes. Raises Rejected."""
        return self._scale_of(obj)

    def _scale_of(self, obj: T) -> Scale:
        """Raises Rejected if the object has no scale."""
        return scale_of(obj)


def scale_of(obj: Any) -> Scale:
    """Return the Scale of a Deployment or ReplicaSet."""
    scale = Scale()
    set_identity(obj, scale)
    scale.spec.replicas = obj.spec.replicas
    scale.spec.SetInParent()
    scale.status.replicas = obj.status.replicas
    scale.status.selector = str(from_message(obj.spec.selector))
    scale.status.SetInParent()
    return scale


def set_identity(obj: Object, scale: Scale) -> None:
    """Set the metadata of the Scale of an object."""
    for name in _METADATA:
        setattr(scale.metadata, name, getattr(obj.metadata, name))
    scale.metadata.creationTimestamp.CopyFrom(obj.metadata.creationTimestamp)
