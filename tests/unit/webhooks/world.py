"""An API server without a transport, and webhooks on an HTTPS server in the same process."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pinnace.api.admissionregistration_v1_pb2 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from pinnace.api.codec import from_dict
from pinnace.api.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
    by_kind,
)
from pinnace.apiserver.assembly import Assembly, ServerSettings
from pinnace.apiserver.auth.authentication import UNSECURED, User
from pinnace.apiserver.registry.strategy import collect_warnings
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PATIENCE, Caller
from tests.webhook_server import WebhookServer

CONFIG_MAPS_RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


def config_map(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}} | more


def webhook(server: WebhookServer, path: str, **more: Any) -> dict[str, Any]:
    """Return a webhook about ConfigMaps, which is named after its path."""
    return {
        "name": f"{path}.example.com",
        "clientConfig": {"url": server.url(path), "caBundle": server.ca_bundle},
        "rules": [CONFIG_MAPS_RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    } | more


class Server:
    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.warnings: list[str] = []

    async def call(self, method: str, user: User = UNSECURED, **fields: Any) -> bytes:
        """Call a method with a request of these fields, in JSON form. Raises Rejected."""
        called = self.assembly.methods[f"/pinnace.v1.{method}"]
        request: Any = called.parse(b"")
        for name, value in fields.items():
            if isinstance(value, str | bytes | int):
                setattr(request, name, value)
            elif isinstance(value, list):
                getattr(request, name).extend(value)
            elif isinstance(value, Mapping):
                getattr(request, name).CopyFrom(from_dict(type(getattr(request, name)), value))
            else:
                getattr(request, name).CopyFrom(value)
        with collect_warnings() as warnings:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await called.call(request, Caller(user))
            finally:
                self.warnings = list(warnings)

    async def create(self, form: Mapping[str, Any], **more: Any) -> Any:
        """Create an object from its JSON form. Raises Rejected."""
        resource = resource_of(form)
        plural = resource.service.rpartition(".")[2]
        obj = from_dict(resource, form)
        return resource.message.FromString(await self.call(f"{plural}/Create", object=obj, **more))

    async def configure(
        self, *, mutating: Iterable[Mapping[str, Any]] = (), validating: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        """Create a configuration with these webhooks, and wait until it has an effect."""
        for kind, resource, webhooks in (
            (MutatingWebhookConfiguration, MUTATING_WEBHOOK_CONFIGURATIONS, list(mutating)),
            (ValidatingWebhookConfiguration, VALIDATING_WEBHOOK_CONFIGURATIONS, list(validating)),
        ):
            if webhooks:
                obj = kind(webhooks=[_read_webhook(kind, item) for item in webhooks])
                obj.metadata.name = "hooks"
                await self.call(f"{resource.service.rpartition('.')[2]}/Create", object=obj)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the cache contains all writes."""
        await self.assembly.cacher.wait_until_fresh(PATIENCE)


def resource_of(form: Mapping[str, Any]) -> Resource[Any]:
    resource = by_kind(form["kind"], form["apiVersion"])
    assert resource is not None
    return resource


def _read_webhook(kind: Any, form: Mapping[str, Any]) -> Any:
    """`caBundle` is bytes."""
    client = {name: value for name, value in form["clientConfig"].items() if name != "caBundle"}
    descriptor = kind.DESCRIPTOR.fields_by_name["webhooks"].message_type
    message = from_dict(descriptor._concrete_class, dict(form) | {"clientConfig": client})
    message.clientConfig.caBundle = form["clientConfig"].get("caBundle", b"")
    return message


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Server]:
    assembly = Assembly(MemoryStorage(), ServerSettings(**settings))
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.opening.bootstrapped.wait()
        yield Server(assembly)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
