"""ServiceAddresses refuses the deletion of an IPAddress while its service uses the address."""

from typing import Any

from apiserver import errors
from apiserver.cacher.cacher import ResourceCache
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from apiserver.registry.allocation import keys_of
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.resources import IP_ADDRESSES, SERVICES


class ServiceAddresses:
    asked = ((Operation.DELETE, IP_ADDRESSES),)

    def __init__(self, services: ResourceCache[Service]) -> None:
        self._services = services

    def validate(self, request: Request, operation: Operation, obj: Any, old: Any) -> None:
        parent = old.spec.parentRef
        if (parent.group, parent.resource) != ("", SERVICES.plural):
            return
        entry = self._services.get(SERVICES.key(parent.namespace, parent.name))
        if entry is not None and IP_ADDRESSES.key_of(old) in keys_of(entry.obj):
            service = f'service "{parent.namespace}/{parent.name}"'
            message = f'ipaddresses "{old.metadata.name}" is forbidden: {service} uses the address; delete the service instead'
            raise Rejected(errors.forbidden(message))
