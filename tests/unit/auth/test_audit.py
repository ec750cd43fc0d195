"""Who wrote what, and what came of it: is it written down?"""

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.resources import PODS
from pinnace.api.status import Code, Refusal
from pinnace.api.users import AUTHENTICATED
from pinnace.apiserver.assembly import Assembly, ServerSettings
from pinnace.apiserver.auth.audit import INTERVAL, MAX_NAME, AuditEvent, AuditLog
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.auth.permissions import ResourceAction
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.methods import Method
from pinnace.apiserver.storage.interface import Committed, CompareFailed, Write
from pinnace.runtime import logs
from pinnace.runtime.logs import AuditLinesLost
from tests.builders import make_pod
from tests.clock import FakeClock
from tests.logged import logged
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller
from tests.unit.cacher.world import eventually

EVE = User("eve", (AUTHENTICATED,))
CREATE = ResourceAction("create", "pods")
WRITER = User("writer", (MASTERS,))


class Counts:
    def __init__(self) -> None:
        self.has, self.lacks = 0, 0

    def record_written_lines(self, lines: int) -> None:
        self.has += lines

    def record_lost_lines(self, lines: int) -> None:
        self.lacks += lines


async def write(path: Path, *calls: Iterable[AuditEvent]) -> Counts:
    """These calls of Eve's."""
    clock, counts = FakeClock(), Counts()
    audit = AuditLog(path, counts, clock)
    running = asyncio.ensure_future(audit.run())
    for number, deeds in enumerate(calls, start=1):
        logs.request_id.set(f"one-{number}")
        audit.record(EVE, deeds)
    await clock.advance(INTERVAL)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return counts


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_audit_line_has_user_verb_and_result(tmp_path: Path) -> None:
    refusal = Refusal(Code.ALREADY_EXISTS, "AlreadyExists", 'pods "b" already exists')
    log = tmp_path / "log"
    await write(log, [AuditEvent(CREATE, "default", "a", 7), AuditEvent(CREATE, "default", "b", refusal=refusal)])
    done, refused = lines(log)
    assert done == {
        "auditID": "one-1",
        "stageTimestamp": "1970-01-12T13:46:40.000000Z",
        "user": {"username": "eve", "groups": ["system:authenticated"]},
        "verb": "create",
        "objectRef": {"apiGroup": "", "resource": "pods", "namespace": "default", "name": "a", "resourceVersion": "7"},
        "responseStatus": {"status": "Success"},
    }
    assert refused["responseStatus"]["reason"] == "AlreadyExists" and "resourceVersion" not in refused["objectRef"]
    assert refused["auditID"] == done["auditID"]


async def test_audit_events_of_calls_are_distinct_and_ordered(tmp_path: Path) -> None:
    log = tmp_path / "log"
    await write(log, *([AuditEvent(ResourceAction("update", "pods/status"), "n", str(i))] for i in range(100)))
    result = lines(log)
    assert [line["objectRef"]["name"] for line in result] == [str(i) for i in range(100)]
    assert len({line["auditID"] for line in result}) == 100
    assert result[0]["objectRef"]["subresource"] == "status"


async def test_buffered_audit_events_are_written_at_the_end(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "log", Counts(), FakeClock())
    running = asyncio.ensure_future(audit.run())
    await asyncio.sleep(0)
    audit.record(EVE, [AuditEvent(CREATE, "default", "late")])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "late" in (tmp_path / "log").read_text()


async def test_name_breaks_no_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    await write(log, [AuditEvent(CREATE, "default", 'a"\n{"user": "root"}')])
    (line,) = lines(log)
    assert line["objectRef"]["name"] == 'a"\n{"user": "root"}'


async def test_line_is_short_whatever_was_wanted(tmp_path: Path) -> None:
    """Each item of a batch that is refused is told why, and that may name one of them."""
    log, long = tmp_path / "log", "x" * 1_000_000
    refusal = Refusal(Code.PERMISSION_DENIED, "Forbidden", f'pods "{long}" is forbidden')
    await write(log, [AuditEvent(ResourceAction("patch", f"{long}/{long}", long), long, long, refusal=refusal)] * 10)
    result = lines(log)
    assert len(result) == 10 and log.stat().st_size < 10 * 4096
    assert result[0]["objectRef"]["name"] == "x" * MAX_NAME + "..."
    assert result[0]["responseStatus"]["message"].startswith('pods "xxx')


async def test_full_disk_blocks_no_call(caplog: pytest.LogCaptureFixture) -> None:
    counts = await write(Path("/dev/full"), [AuditEvent(CREATE, "default", "a")])
    assert (counts.has, counts.lacks) == (0, 1)
    assert logged(caplog, AuditLinesLost) == [AuditLinesLost(1)]


class Disk:
    """A file that takes so many bytes, and more once it is `freed`."""

    def __init__(self, room: int) -> None:
        self.content = b""
        self.room = room

    def write(self, data: bytes) -> int:
        taken = data[: self.room]
        if not taken:
            raise OSError(errno.ENOSPC, "no space left on device")
        self.content, self.room = self.content + taken, self.room - len(taken)
        return len(taken)

    def close(self) -> None:
        return


async def test_lines_are_whole_and_counted_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file object kept the rest of a line and wrote it later, before lines that were counted as lost."""
    clock, counts, disk = FakeClock(), Counts(), Disk(room=1000)
    audit = AuditLog(tmp_path / "log", counts, clock)
    vars(audit)["_file"].close()
    monkeypatch.setattr(audit, "_file", disk)
    running = asyncio.ensure_future(audit.run())
    await asyncio.sleep(0)
    for number in range(3):
        audit.record(EVE, [AuditEvent(CREATE, "default", f"{number}-{index}") for index in range(10)])
        if number == 2:
            disk.room = 1 << 20
        await clock.advance(INTERVAL)
        await eventually(lambda: counts.has + counts.lacks == 10 * (number + 1))  # noqa: B023 (awaited here)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    whole, torn = [], 0
    for line in disk.content.decode().splitlines():
        try:
            whole.append(json.loads(line)["objectRef"]["name"])
        except ValueError:
            torn += 1
    assert torn == 1 and counts.has == len(whole) and counts.has + counts.lacks == 30
    assert whole[-10:] == [f"2-{index}" for index in range(10)]


class Notes:
    enabled = True

    def __init__(self) -> None:
        self.taken: list[tuple[str, AuditEvent]] = []

    def record(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        self.taken.extend((user.name, deed) for deed in deeds)


def brief(user: str, deed: AuditEvent) -> tuple[str, str, str, str, bool, str]:
    reason = deed.refusal.reason if deed.refusal else ""
    return user, deed.action.verb, deed.action.resource, deed.name, deed.revision > 0, reason


async def test_every_write_is_noted_and_every_refusal(tmp_path: Path) -> None:
    notes = Notes()
    assembly = Assembly(MemoryStorage(), ServerSettings(audit=notes))
    running = asyncio.ensure_future(assembly.run())
    await assembly.opening.bootstrapped.wait()

    async def call(method: str, user: User, **fields: Any) -> None:
        result: Method = assembly.methods[f"/pinnace.v1.Pods/{method}"]
        request = type(result.parse(b""))(**fields)
        try:
            await result.call(request, Caller(user))
        except Rejected:
            return

    admin = PEOPLE["admin"]
    pod = make_pod("a").req(cpu="1").new()
    await call("Create", admin, object=pod)
    await call("Create", admin, object=make_pod("dry").req(cpu="1").new(), options={"dryRun": ["All"]})
    await call("CreateBatch", admin, items=[pod, make_pod("b").req(cpu="1").new()])
    await call("Bind", admin, binding={"metadata": {"name": "a", "namespace": "default"}, "target": {"name": "n"}})
    await call("Patch", admin, namespace="default", name="a", type="MERGE", patch=b'{"metadata": {"labels": {"x": "y"}}}')
    await call("Delete", EVE, namespace="default", name="a")
    await call("Get", EVE, namespace="default", name="a")
    await call("Delete", admin, namespace="default", name="b")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert list(starmap(brief, notes.taken)) == [
        ("kubernetes-admin", "create", "pods", "a", True, ""),
        ("kubernetes-admin", "create", "pods", "a", False, "AlreadyExists"),
        ("kubernetes-admin", "create", "pods", "b", True, ""),
        ("kubernetes-admin", "create", "pods/binding", "a", True, ""),
        ("kubernetes-admin", "patch", "pods", "a", True, ""),
        ("eve", "delete", "pods", "a", False, "Forbidden"),
        ("eve", "get", "pods", "a", False, "Forbidden"),
        ("kubernetes-admin", "delete", "pods", "b", True, ""),
    ]


async def test_line_says_where_the_object_is_and_not_what_was_left_out() -> None:
    notes = Notes()
    assembly = Assembly(MemoryStorage(), ServerSettings(audit=notes))
    running = asyncio.ensure_future(assembly.run())
    await assembly.opening.bootstrapped.wait()

    async def call(method: str, **fields: Any) -> None:
        result: Method = assembly.methods[f"/pinnace.v1.{method}"]
        await result.call(type(result.parse(b""))(**fields), Caller(PEOPLE["admin"]))

    patch = b'{"metadata": {"labels": {"x": "y"}}}'
    await call("Pods/Create", object={"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    await call("Pods/Patch", name="a", type="MERGE", patch=patch)
    await call("Pods/Delete", name="a")
    await call("Nodes/Create", object={"metadata": {"name": "n", "namespace": "default"}})
    await call("Nodes/Patch", namespace="default", name="n", type="MERGE", patch=patch)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [(deed.action.resource, deed.namespace) for _, deed in notes.taken] == [("pods", "default")] * 3 + [
        ("nodes", "")
    ] * 2


class Slow(MemoryStorage):
    """Transactions that write pods stay on their way until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way, self.let = asyncio.Event(), asyncio.Event()
        self.let.set()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if any(write.key.startswith(PODS.prefix) for write in writes):
            self.under_way.set()
            await self.let.wait()
        return await super().transact(writes)


POD = {"namespace": "default", "name": "a"}


@pytest.mark.parametrize(
    ("method", "fields", "expected"),
    [
        ("Create", {"object": make_pod("new").req(cpu="1").new()}, ("create", "pods", ["new"])),
        (
            "CreateBatch",
            {"items": [make_pod("x").req(cpu="1").new(), make_pod("y").req(cpu="1").new()]},
            ("create", "pods", ["x", "y"]),
        ),
        ("Update", {"object": make_pod("a").label("x", "y").req(cpu="1").new()}, ("update", "pods", ["a"])),
        ("UpdateStatus", {"object": {"metadata": POD, "status": {"message": "m"}}}, ("update", "pods/status", ["a"])),
        ("Patch", POD | {"type": "MERGE", "patch": b'{"metadata": {"labels": {"x": "y"}}}'}, ("patch", "pods", ["a"])),
        ("Delete", POD, ("delete", "pods", ["a"])),
        ("DeleteCollection", {"namespace": "default"}, ("delete", "pods", ["a"])),
        ("Bind", {"binding": {"metadata": POD, "target": {"name": "n"}}}, ("create", "pods/binding", ["a"])),
        ("Evict", {"eviction": {"metadata": POD}}, ("create", "pods/eviction", ["a"])),
    ],
)
async def test_cancelled_call_is_audited(method: str, fields: dict[str, Any], expected: tuple[str, str, list[str]]) -> None:
    """His write is on its way, and happens: else nobody would be found who breaks off his calls."""
    notes, storage, admin = Notes(), Slow(), Caller(PEOPLE["admin"])
    assembly = Assembly(storage, ServerSettings(audit=notes))
    running = asyncio.ensure_future(assembly.run())

    def call(verb: str, fields: dict[str, Any]) -> asyncio.Task[bytes]:
        result: Method = assembly.methods[f"/pinnace.v1.Pods/{verb}"]
        return asyncio.ensure_future(result.call(type(result.parse(b""))(**fields), admin))

    async with asyncio.timeout(10):
        await assembly.opening.bootstrapped.wait()
        await call("Create", {"object": make_pod("a").req(cpu="1").new()})
        notes.taken.clear()
        storage.let.clear()
        storage.under_way.clear()
        pods = assembly.cacher.cache_of(PODS)
        before = pods.version
        leaving = call(method, fields)
        await storage.under_way.wait()
        leaving.cancel()
        await asyncio.wait((leaving,))
        assert leaving.cancelled()
        storage.let.set()
        await eventually(lambda: pods.version > before)
    verb, resource, names = expected
    assert list(starmap(brief, notes.taken)) == [
        ("kubernetes-admin", verb, resource, name, False, "OutcomeUnknown") for name in names
    ]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def audited(storage: MemoryStorage | None = None, **settings: Any) -> AsyncIterator[tuple[Assembly, Notes]]:
    notes = Notes()
    assembly = Assembly(storage or MemoryStorage(), ServerSettings(audit=notes, **settings))
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(10):
            await assembly.opening.bootstrapped.wait()
        yield assembly, notes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def begin(assembly: Assembly, path: str, user: User, fields: dict[str, Any]) -> asyncio.Task[bytes]:
    method = assembly.methods[f"/pinnace.v1.{path}"]
    message: Any = type(method.parse(b""))
    return asyncio.ensure_future(method.call(message(**fields), Caller(user)))


@pytest.mark.parametrize(
    ("path", "fields", "noted"),
    [
        ("Namespaces/Delete", {"name": "default"}, ("delete", "namespaces", "default", "NamespacePermanent")),
        (
            "Pods/DeleteCollection",
            {"namespace": "default", "deleteOptions": {"preconditions": {"uid": "x"}}},
            ("deletecollection", "pods", "", "BadRequest"),
        ),
        (
            "Pods/Delete",
            {"namespace": "default", "name": "a", "options": {"dryRun": ["most"]}},
            ("delete", "pods", "a", "BadRequest"),
        ),
        ("Elections/Transfer", {"name": "scheduler", "to": "b"}, ("transfer", "elections", "scheduler", "NotFound")),
        ("Pods/Update", {"object": {}}, ("update", "pods", "", "Invalid")),
    ],
)
async def test_call_that_is_refused_before_it_comes_to_its_objects_is_noted(
    path: str, fields: dict[str, Any], noted: tuple[str, str, str, str]
) -> None:
    async with audited() as (assembly, notes):
        with pytest.raises(Rejected):
            await begin(assembly, path, PEOPLE["admin"], fields)
        verb, resource, name, reason = noted
        assert list(starmap(brief, notes.taken)) == [("kubernetes-admin", verb, resource, name, False, reason)]


async def test_call_that_no_server_takes_now_is_noted() -> None:
    async with audited() as (assembly, notes):
        assembly.opening.drain()
        with pytest.raises(Rejected):
            await begin(assembly, "Pods/Delete", PEOPLE["admin"], POD)
        assert list(starmap(brief, notes.taken)) == [("kubernetes-admin", "delete", "pods", "a", False, "ShuttingDown")]


async def test_call_whose_caller_leaves_while_it_waits_for_its_turn_is_noted() -> None:
    storage = Slow()
    async with audited(storage, seats=1) as (assembly, notes):
        storage.let.clear()
        calls = [
            begin(assembly, "Pods/Create", WRITER, {"object": make_pod(f"p{index}").req(cpu="1").new()}) for index in range(40)
        ]
        await storage.under_way.wait()
        calls[-1].cancel()
        await asyncio.wait((calls[-1],))
        assert [brief(*item)[3:] for item in notes.taken] == [("p39", False, "Canceled")]
        storage.let.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(deed.name for _, deed in notes.taken) == sorted(f"p{index}" for index in range(40)), "one line each"


async def test_batch_has_a_line_for_each_item() -> None:
    async with audited() as (assembly, notes):
        pods = [make_pod(name).req(cpu="1").new() for name in ("a", "b", "a", "B!")]
        await begin(assembly, "Pods/CreateBatch", PEOPLE["admin"], {"items": pods})
        assert [brief(*item)[3:] for item in notes.taken] == [
            ("a", True, ""),
            ("b", True, ""),
            ("a", False, "AlreadyExists"),
            ("B!", False, "Invalid"),
        ]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("Pods/Create", {"object": make_pod("dry").req(cpu="1").new(), "options": {"dryRun": ["All"]}}),
        ("Pods/CreateBatch", {"options": {"dryRun": ["All"]}}),
        ("Events/Record", {}),
        ("Authorization/SelfSubjectReview", {}),
        ("Pods/List", {}),
    ],
)
async def test_call_that_writes_nothing_is_not_noted(path: str, fields: dict[str, Any]) -> None:
    async with audited() as (assembly, notes):
        await begin(assembly, path, PEOPLE["admin"], fields)
        assert not notes.taken
