"""The gRPC service of a version of a custom kind. Requests have objects in the version, and responses have them as stored."""

from typing import Any

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.codec import to_dict
from pinnace.api.customobjects import write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.status import Code, Refusal
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.apiextensions.subresources import ScaleError, scale_of, set_replicas
from pinnace.apiserver.auth.audit import AuditSink
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.services.scale import ScaledService, set_identity


class CustomObjectService(ScaledService[CustomObject]):
    def __init__(
        self,
        version: CustomVersion,
        store: Store[CustomObject],
        cacher: Cacher,
        audit: AuditSink,
        authorizer: Authorizer,
    ) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._custom = version

    def write_request(self, request: Any, context: Context) -> WriteRequest:
        return super().write_request(request, context)._replace(qualified=self._custom.kind.qualified)

    def _scale_of(self, obj: CustomObject) -> Scale:
        scale = Scale()
        set_identity(obj, scale)
        try:
            values = scale_of(self._custom.to_served(obj), self._scale_paths())
        except ScaleError as error:
            raise Rejected(Refusal(Code.INTERNAL, "InternalError", str(error))) from None
        scale.spec.replicas = values["spec"].get("replicas", 0)
        scale.spec.SetInParent()
        scale.status.replicas = values["status"].get("replicas", 0)
        scale.status.selector = values["status"].get("selector", "")
        scale.status.SetInParent()
        return scale

    def _scale_to_change(self, obj: CustomObject) -> Scale:
        with_replicas = CustomObject()
        with_replicas.CopyFrom(obj)
        try:
            return self._scale_of(obj)
        except Rejected:  # Kubernetes writes the first replicas, too
            self._set_replicas(with_replicas, 0)
            return self._scale_of(with_replicas)

    def _set_replicas(self, obj: CustomObject, replicas: int) -> None:
        form = to_dict(obj)
        try:
            set_replicas(form, self._scale_paths(), replicas)
        except ScaleError as error:
            raise Rejected(Refusal(Code.INTERNAL, "InternalError", str(error))) from None
        obj.content = write_content(form)

    def _scale_paths(self) -> dict[str, Any]:
        """Raises Rejected if the version has no scale subresource."""
        if not self._custom.has_scale:
            raise Rejected(Refusal(Code.UNIMPLEMENTED, "NotFound", "the kind has no scale subresource"))
        paths: dict[str, Any] = self._custom.form["subresources"]["scale"]
        return paths
