"""Who may call what: every method of the API, called as everybody, about something of one's own and about another's.

The calls go through the same door as gRPC's (apiserver.services.methods), before a storage in memory. What comes behind the
door does not matter: only a refusal for lack of permission counts.

    python -m tests.unit.auth.matrix        writes the table into docs/permissions.md
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from pinnace.api import resources
from pinnace.api.conversion import SERVED_VERSIONS
from pinnace.api.core_v1_pb2 import Namespace, Node
from pinnace.api.names import NodeNames
from pinnace.api.rbac_v1_pb2 import RoleBinding
from pinnace.api.resources import (
    LEASES,
    NAMESPACES,
    NODE_LEASE_NAMESPACE,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SYSTEM_NAMESPACE,
    Resource,
)
from pinnace.api.status import Code
from pinnace.api.users import AUTHENTICATED
from pinnace.api.verbs_pb2 import BatchResponse, PatchRequest
from pinnace.api.wellknown import CONTROLLERS_ELECTION, FLEET_LABEL, SCHEDULER_ELECTION
from pinnace.apiserver.assembly import DEFAULTS, Assembly, ServerSettings
from pinnace.apiserver.auth.authentication import MASTERS, NODES_GROUP, Credential, User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.strategies.policy import SYSTEM_CLASSES
from pinnace.apiserver.services.methods import Method
from pinnace.apiserver.storage.interface import Storage
from tests.builders import make_node, make_pod
from tests.credentials import Shown
from tests.storage.memory import MemoryStorage

DOCUMENT = Path(__file__).parents[3] / "docs/permissions.md"
BEGIN, END = "<!-- permissions: made by `make security-table` -->", "<!-- end of permissions -->"
PATIENCE = 10.0
OWN, OTHER = "mine", "theirs"
"""Namespaces of somebody's own, and of others."""
OWN_NODE, OTHER_NODE = "edge-0", "core-0"

PEOPLE: Mapping[str, User] = {
    "admin": User("kubernetes-admin", (MASTERS, AUTHENTICATED)),
    "scheduler": User("system:kube-scheduler", (AUTHENTICATED,)),
    "controllers": User("system:kube-controller-manager", (AUTHENTICATED,)),
    "fleet": User("system:node:edge", (NODES_GROUP, AUTHENTICATED), NodeNames.parse(["edge-*"])),
    "namespace admin": User("nora", (AUTHENTICATED,)),
    "editor": User("eve", (AUTHENTICATED,)),
    "viewer": User("vera", (AUTHENTICATED,)),
    "nobody": User("nemo", (AUTHENTICATED,)),
}
"""Each as its certificate or token says."""
_ROLES = {"nora": "admin", "eve": "edit", "vera": "view"}
"""What is bound to people, in the namespace OWN."""
_ELECTIONS = {"system:kube-scheduler": SCHEDULER_ELECTION, "system:kube-controller-manager": CONTROLLERS_ELECTION}
"""Those of their own."""
_BY_SERVICE = {resource.service: resource for resource in (*resources.ALL, *SERVED_VERSIONS)} | {
    "pinnace.v1.NodeMetrics": NODES,
    "pinnace.v1.PodMetrics": PODS,
}


class Caller:
    """A context of a call."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.credential: Credential = Shown(user)

    def time_remaining(self) -> float | None:
        return PATIENCE

    def on_response_taken(self, callback: Callable[[], None]) -> None:
        callback()


@asynccontextmanager
async def serving(storage: Storage | None = None, settings: ServerSettings = DEFAULTS) -> AsyncIterator[Assembly]:
    """An API server without a transport, with two namespaces, two nodes, a pod on each, and people with roles. `storage`: an
    empty one; None: one of its own."""
    assembly = Assembly(storage or MemoryStorage(), settings)
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.opening.bootstrapped.wait()
        for namespace, node in ((OWN, OWN_NODE), (OTHER, OTHER_NODE)):
            await _create(assembly, "Namespaces", _named(Namespace(), namespace))
            await _create(assembly, "Nodes", _node(node))
            pod = make_pod("thing", namespace=namespace).req(cpu="1").node(node).new()
            pod.spec.serviceAccountName = "thing"
            await _create(assembly, "Pods", pod)
        for person, role in _ROLES.items():
            binding = _named(RoleBinding(), person, OWN)
            binding.subjects.add(kind="User", name=person)
            binding.roleRef.kind, binding.roleRef.name = "ClusterRole", role
            await _create(assembly, "RoleBindings", binding)
        yield assembly
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def matrix(assembly: Assembly) -> dict[str, list[str]]:
    """By method: what each of PEOPLE may do with it. "yes", "own" or "no"."""
    return {
        method.name: [await _reach(method, person) for person in PEOPLE.values()]
        for method in sorted(assembly.methods.values(), key=lambda item: item.name)
    }


def table(cells: Mapping[str, Sequence[str]]) -> str:
    """In Markdown. Methods of a service with equal permissions share a row, and so do services with equal rows."""
    services: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, row in cells.items():
        service, _, method = name.rpartition("/")
        services.setdefault(service.rpartition(".")[2], {}).setdefault(tuple(row), []).append(method)
    shared: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for service, rows in services.items():
        for row, methods in rows.items():
            shared.setdefault((", ".join(methods), row), []).append(service)
    lines = [f"| method | {' | '.join(PEOPLE)} |", f"|---{'|---' * len(PEOPLE)}|"]
    for (methods_of, row), names in shared.items():
        lines.append(f"| {', '.join(names)}: {methods_of} | {' | '.join('' if cell == 'no' else cell for cell in row)} |")
    return "\n".join(lines)


def documented() -> str:
    """The table in the document."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip()


async def _reach(method: Method, person: User) -> str:
    own, other = [await may(method, person, _request(method, person, whose)) for whose in (OWN, OTHER)]
    return "yes" if other else "own" if own else "no"


async def may(method: Method, person: User, request: Any) -> bool:
    """Does the door open?"""
    caller = Caller(person)
    try:
        async with asyncio.timeout(PATIENCE):
            if not method.server_streaming:
                answer = await method.call(request, caller)
                return not (method.name.endswith(("Batch", "Collection", "Record")) and _is_refused(answer))
            sent = _only(request) if method.client_streaming else request
            async with aclosing(method.stream(sent, caller)) as responses:
                await anext(responses, None)
    except Rejected as rejected:
        return rejected.refusal.code is not Code.PERMISSION_DENIED
    return True


def _is_refused(answer: bytes) -> bool:
    return any(item.error.code == Code.PERMISSION_DENIED for item in BatchResponse.FromString(answer).items)


async def _only(request: Any) -> AsyncIterator[Any]:
    """A stream of one request, that stays open."""
    yield request
    await asyncio.Event().wait()


async def _create(assembly: Assembly, service: str, obj: Any) -> None:
    method = assembly.methods[f"/pinnace.v1.{service}/Create"]
    request = method.parse(b"")
    request.object.CopyFrom(obj)
    await method.call(request, Caller(PEOPLE["admin"]))


def _node(name: str) -> Node:
    return make_node(name).label(FLEET_LABEL, name.partition("-")[0]).new()


def _named(obj: Any, name: str, namespace: str = "") -> Any:
    obj.metadata.name, obj.metadata.namespace = name, namespace
    return obj


def _request(method: Method, person: User, whose: str) -> Any:
    """About something of the namespace OWN, of the node OWN_NODE or of the person's own election; or of another's. A list or
    watch that is not confined to what is one's own is of everything; a collection to delete, of all but what nobody may."""
    service, _, name = method.name.rpartition("/")
    request: Any = method.parse(b"")
    resource = _BY_SERVICE.get(service)
    if resource is None:
        _special(request, person, whose)
        return request
    namespace, thing = _thing(resource, whose)
    if name == "Heartbeat":
        request.open.holder, request.open.nodes[:] = thing.partition("-")[0], [thing]
    elif name in ("List", "Watch", "DeleteCollection"):
        if whose == OWN:
            request.namespace = namespace
            request.options.fieldSelector = f"spec.nodeName={OWN_NODE}" if resource is PODS else f"metadata.name={thing}"
        elif name == "DeleteCollection" and resource is PRIORITY_CLASSES:
            request.options.fieldSelector = ",".join(f"metadata.name!={system}" for system in SYSTEM_CLASSES)
        elif name == "DeleteCollection" and resource is LEASES:
            request.options.fieldSelector = f"metadata.namespace!={SYSTEM_NAMESPACE}"  # those of elections are read-only
        if name == "DeleteCollection":
            request.deleteOptions.dryRun.append("All")
    elif name in ("Bind", "BindBatch"):
        binding = request.binding if name == "Bind" else request.items.add()
        _named(binding, "nothing", whose)
        binding.target.name = thing
        request.fence.election, request.fence.token = "scheduler", 1
    elif name in ("Evict", "EvictBatch"):
        eviction = request.eviction if name == "Evict" else request.items.add()
        _named(eviction, "thing", whose)
        eviction.deleteOptions.dryRun.append("All")
    elif name == "Exec":
        request.start.namespace, request.start.name, request.start.command[:] = namespace, thing, ["true"]
    elif name == "PortForward":
        request.start.namespace, request.start.name, request.start.port = namespace, thing, 80
    elif name in ("Get", "GetScale", "Logs", "Attach", "Patch", "PatchScale", "Delete", "DeleteBatch"):
        wanted = request.items.add() if name == "DeleteBatch" else request
        wanted.namespace, wanted.name = namespace, thing
        if name in ("Patch", "PatchScale"):
            request.type, request.patch = PatchRequest.MERGE, b"{}"
        if name not in ("Get", "GetScale", "Logs", "Attach"):
            wanted.options.dryRun.append("All")
    else:
        obj: Any = request.items.add() if name in ("CreateBatch", "UpdateStatusBatch", "Record") else request.object
        if resource is NODES:
            obj.CopyFrom(_node(thing))
        _named(obj, thing.replace("-0", "-1") if name.startswith("Create") else thing, namespace)
        request.options.dryRun.append("All")
    return request


def _thing(resource: Resource[Any], whose: str) -> tuple[str, str]:
    """Its namespace and name."""
    node = OWN_NODE if whose == OWN else OTHER_NODE
    if resource is LEASES:
        return NODE_LEASE_NAMESPACE, node
    if resource is NAMESPACES:
        return "", whose
    return (whose, "thing") if resource.namespaced else ("", node)


def _special(request: Any, person: User, whose: str) -> None:
    """Of services that are no resource's."""
    fields = {field.name for field in request.DESCRIPTOR.fields}
    election = _ELECTIONS.get(person.name, whose) if whose == OWN else whose
    if "open" in fields:
        request.open.election, request.open.holder, request.open.secret = election, "somebody", bytes(16)
    if "name" in fields:
        request.name = election
    if {"namespace", "name", "object"} <= fields:  # a token of a service account
        request.namespace, request.name = whose, "thing"
    if "user" in fields:
        request.user = "somebody"
    if "resource" in fields:
        request.resource = "pods"
        if whose == OWN:
            request.namespace, request.options.fieldSelector = OWN, f"spec.nodeName={OWN_NODE}"
    if "calls" in fields:  # a stream of calls, each with a permission of its own
        request.calls.add(id=1, method="/pinnace.v1.Version/Get", timeout_ms=10_000)
    if "attributes" in fields:
        request.attributes.verb, request.attributes.resource = "get", "pods"


async def main() -> None:
    async with serving() as assembly:
        made = table(await matrix(assembly))
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{made}\n{END}{tail}")


if __name__ == "__main__":
    asyncio.run(main())
