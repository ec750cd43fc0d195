"""The permission of a write, asked before its body is read.

The API server authorizes each call. This check only decides whether the gateway reads and decodes a body, so it may use a
decision of the last ALLOWED_FOR seconds. Denials are not kept: a new role takes effect at once.

    user, verb, resource, namespace --allowed for all names: kept--> body
         '--for this name only------------------------------------> body
         '--denied--> 403, before the body is read
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from pinnace.api.authorization_pb2 import AccessReview, ResourceAttributes, SelfSubjectAccessReviewRequest
from pinnace.gateway import api_resources
from pinnace.gateway.backend import Backend
from pinnace.gateway.http import ApiStatus, Request, User
from pinnace.gateway.routes import Route

ALLOWED_FOR = 10.0
"""Seconds for which a permission is kept."""
MAX_KEPT = 10_000
"""The maximum number of kept permissions."""
NAMESPACE = api_resources.find_resource("", "v1", "namespaces")
MASTERS = "system:masters"
_METHOD = "/pinnace.v1.Authorization/SelfSubjectAccessReview"


class _AccessAttributes(NamedTuple):
    user: User
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str


class AccessChecker:
    def __init__(self, backend: Backend, now: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._now = now
        self._allowed: OrderedDict[_AccessAttributes, float] = OrderedDict()
        """When the permissions end."""

    async def check(self, request: Request, route: Route) -> None:
        """Raise ApiStatus (403) if the user may not perform the request, and ApiError if no API server answers."""
        if MASTERS in request.user.groups:
            return
        resource = route.resource
        namespace = route.name if resource is NAMESPACE else route.namespace  # a Namespace is an object of itself
        question = _AccessAttributes(request.user, route.verb, resource.group, resource.plural, route.subresource, namespace)
        if self._allowed.get(question, 0.0) > self._now():
            return
        if await self._review_access(request, question, ""):
            self._allowed[question] = self._now() + ALLOWED_FOR
            self._allowed.move_to_end(question)
            if len(self._allowed) > MAX_KEPT:
                self._allowed.popitem(last=False)
        elif not route.name or not await self._review_access(request, question, route.name):
            raise forbidden_status(question, route)

    async def _review_access(self, request: Request, question: _AccessAttributes, name: str) -> bool:
        attributes = ResourceAttributes(
            verb=question.verb,
            group=question.group,
            resource=question.resource,
            subresource=question.subresource,
            namespace=question.namespace,
            name=name,
        )
        message = SelfSubjectAccessReviewRequest(attributes=attributes)
        return AccessReview.FromString(await self._backend.call(request, _METHOD, message, retry=True)).allowed


def forbidden_status(question: _AccessAttributes, route: Route) -> ApiStatus:
    """Return the refusal with Kubernetes' message."""
    resource = f"{question.resource}/{question.subresource}" if question.subresource else question.resource
    qualified = route.resource.qualified_name
    what = f'{qualified} "{route.name}"' if route.name else qualified
    where = f'in the namespace "{question.namespace}"' if question.namespace else "at the cluster scope"
    message = (
        f'{what} is forbidden: User "{question.user.name}" cannot {question.verb} resource "{resource}" '
        f'in API group "{question.group}" {where}'
    )
    group = {"group": question.group} if question.group else {}
    details = ({"name": route.name} if route.name else {}) | group | {"kind": question.resource}
    return ApiStatus(403, "Forbidden", message, details)
