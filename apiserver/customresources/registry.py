"""The custom kinds that a server serves. It follows the definitions in the watch cache, without I/O.

    definition is Established --> history of its objects begins --> methods of its versions are made when they are first called
    definition changes        --> new methods with the new schemas; open watches continue
    definition is gone        --> its watches end, its methods are unknown

A method that is unknown here may be known to another server: it waits until the cache has the present revision of etcd.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from pinnace.api import customobjects_pb2
from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.resources import CUSTOM_OBJECTS, CUSTOM_RESOURCE_DEFINITIONS, CUSTOM_SERVICE
from pinnace.api.status import Code, Refusal
from pinnace.apiextensions.kinds import CustomKind, CustomVersion, kind_of
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheEntry
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.levels import LazyRequest
from pinnace.apiserver.services.methods import Context, Method

_METHODS: Mapping[str, MethodDescriptor] = {
    method.name: method for method in customobjects_pb2.DESCRIPTOR.services_by_name["CustomObjects"].methods
}
_PATH_PREFIX = f"/{CUSTOM_SERVICE}."
MAX_PATH = 400
"""The maximum length of the path of a method: a version, a plural and a group have at most 63, 63 and 253 characters."""
NewMethods = Callable[[CustomVersion], Mapping[str, Method]]
"""Makes the methods of a version, by path."""


class CustomResources:
    """The custom kinds of a server, by the name of their definition."""

    def __init__(self, cacher: Cacher, new_methods: NewMethods, refresh: Callable[[], Awaitable[None]]) -> None:
        """`refresh` brings the cache up to etcd's present revision. It raises CacheError or StorageError."""
        self._cacher = cacher
        self._new_methods = new_methods
        self._refresh = refresh
        self._kinds: dict[str, CustomKind] = {}
        self._names = set[str]()
        """The names of all definitions."""
        self._services: dict[str, Mapping[str, Method]] = {}
        """The methods of the versions that were called, by service."""
        self._listeners: list[Callable[[str], None]] = []
        cacher.cache_of(CUSTOM_RESOURCE_DEFINITIONS).observe(self)

    @property
    def kinds(self) -> Mapping[str, CustomKind]:
        """The established kinds by the names of their definitions."""
        return self._kinds

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the name of each definition that changes, and now with all names."""
        self._listeners.append(listener)

    def reset_entries(self, entries: Iterable[CacheEntry[CustomResourceDefinition]]) -> None:
        """Implement CacheObserver."""
        self._services.clear()
        definitions = [entry.parse_uncached() for entry in entries]
        kinds = [kind for definition in definitions if (kind := kind_of(definition)) is not None]
        self._kinds = {kind.qualified: kind for kind in kinds}
        before, self._names = self._names, {definition.metadata.name for definition in definitions}
        for name in before | self._names:
            self._notify_listeners(name)

    def handle_change(
        self, old: CacheEntry[CustomResourceDefinition] | None, new: CacheEntry[CustomResourceDefinition] | None
    ) -> None:
        """Implement CacheObserver."""
        entry = new if new is not None else old
        assert entry is not None
        name = entry.key.rpartition("/")[2]
        (self._names.discard if new is None else self._names.add)(name)
        before, kind = self._kinds.pop(name, None), kind_of(new.parse_uncached()) if new is not None else None
        for version in before.served if before is not None else ():
            self._services.pop(version.resource.service, None)
        if kind is not None:
            self._kinds[name] = kind
            if before is None or before.uid != kind.uid:
                self._cacher.begin_custom_resource(kind.storage.resource, entry.mod_revision)
        elif before is not None:
            self._cacher.end_custom_resource(before.storage.resource)
        self._notify_listeners(name)

    def method(self, path: str) -> Method | None:
        """Return the method with a path such as "/pinnace.v1.CustomObjects.v1.widgets.example.com/Get"."""
        service = path[1:].rpartition("/")[0]
        if service not in self._services:
            version = self._find_version(service)
            if version is None:
                return None
            self._services[service] = self._new_methods(version)
        return self._services[service].get(path)

    async def find_method(self, path: str) -> Method:
        """Return a method after the cache has the present definitions. Raises Rejected, CacheError, StorageError."""
        await self._refresh()
        method = self.method(path)
        if method is None:
            raise Rejected(Refusal(Code.UNIMPLEMENTED, "NotFound", f"the server has no method {path}"))
        return method

    def _find_version(self, service: str) -> CustomVersion | None:
        version, _, name = service.removeprefix(f"{CUSTOM_SERVICE}.").partition(".")
        kind = self._kinds.get(name)
        if kind is None:
            return None
        found = kind.version_of(f"{kind.group}/{version}")
        return found if found is not None and found.spec.served else None

    def _notify_listeners(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


class MethodTable(Mapping[str, Method]):
    """The methods of a server by path: the built-in ones, and those of custom kinds. Only the former are enumerated."""

    def __init__(self, methods: Mapping[str, Method], custom: CustomResources) -> None:
        self._methods = methods
        self._custom = custom

    def __getitem__(self, path: str) -> Method:
        method = self._methods.get(path)
        if method is None:
            method = self._custom_method(path)
            if method is None:
                raise KeyError(path)
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)

    def _custom_method(self, path: str) -> Method | None:
        if not path.startswith(_PATH_PREFIX) or len(path) > MAX_PATH:
            return None
        descriptor = _METHODS.get(path.rpartition("/")[2])
        if descriptor is None:
            return None
        return self._custom.method(path) or _UnknownMethod(path, descriptor, self._custom)


class _UnknownMethod(Method):
    """A method of a kind that this server does not know, or not yet."""

    def __init__(self, path: str, descriptor: MethodDescriptor, custom: CustomResources) -> None:
        self.name = f"{CUSTOM_OBJECTS.service}/{descriptor.name}"
        self.path = path
        self.client_streaming = descriptor.client_streaming
        self.server_streaming = descriptor.server_streaming
        self.is_paced = True
        self._custom = custom

    def parse(self, data: bytes) -> Message | LazyRequest | None:
        return LazyRequest(data)

    async def call(self, request: Message | LazyRequest | None, context: Context) -> bytes:
        assert isinstance(request, LazyRequest)
        method = await self._custom.find_method(self.path)
        return await method.call(method.parse(request.data), context)

    async def stream(self, request: Any, context: Context) -> AsyncGenerator[bytes, None]:
        assert isinstance(request, LazyRequest)
        method = await self._custom.find_method(self.path)
        responses: AsyncIterator[bytes] = method.stream(method.parse(request.data), context)  # type: ignore[arg-type]  # `Any` of the method's parser
        async for response in responses:
            yield response
