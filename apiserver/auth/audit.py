"""The audit log: a line for each object that somebody wrote, or was refused, in the order in which it was decided.

Lines are JSON with the names of Kubernetes' audit.k8s.io/v1 Event at the level Metadata: who (user), what (verb, and objectRef
with the revision that came of it), the verdict (responseStatus), and the call that it belongs to (auditID: the id of the
request, which items of a batch share). What is in the objects is not in it. Of a write whose caller left before there was an
answer (it broke off, or its deadline passed) the line says that it may have happened: OutcomeUnknown. Each call that writes has
a line, also one that ends before it comes to its objects: it waits too long for its turn, its request is malformed, its caller
leaves. Reads are noted only when they are refused for lack of a permission; dry runs and events never.

A thread writes them, ten times a second and at the end: no call waits for the disk. When it does not keep up, or the disk is
full, lines are lost; the log and a metric count them. A line that was written in part is ended, so that the next one is whole.

Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
"""

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, Protocol

from apiserver.auth.authentication import User
from apiserver.auth.permissions import Action
from pinnace.api.scalars import format_rfc3339, to_micro_time
from pinnace.api.status import Refusal
from pinnace.runtime import logs
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import AuditLinesLost

log = logging.getLogger(__name__)

INTERVAL = 0.1
"""Seconds between two writes."""
MAX_WAITING = 200_000
"""Lines."""
CHUNK = 1 << 20
"""Bytes of one write."""
_END = ord("\n")
_NOTED: ContextVar[list[bool] | None] = ContextVar("noted", default=None)
"""Shared by all tasks of a call."""
MAX_NAME = 316
"""Characters of a name, a resource and the like: those of a label's key, longer than any name that there can be."""
MAX_MESSAGE = 1024
"""Characters of why something was refused: who is refused may have written megabytes of it, and each item of a batch has it."""


class AuditEvent(NamedTuple):
    """What was done, or not, to one object. `revision`: 0, none came of it."""

    action: Action
    namespace: str
    name: str
    revision: int = 0
    refusal: Refusal | None = None


class Audit(Protocol):
    @property
    def wanted(self) -> bool:
        """Is there somebody who writes it down?"""
        ...

    def note(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        """Of the call on whose behalf the present task runs."""
        ...


class NoAudit:
    wanted = False

    def note(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        return


class CallAudit:
    """An Audit that knows of each call whether anything was noted on its behalf."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.wanted = audit.wanted

    def begin(self) -> None:
        """Of the call that the present task is of."""
        _NOTED.set([])

    def noted(self) -> bool:
        """Since the present call has begun; also if it was nothing, as of a dry run."""
        return bool(_NOTED.get())

    def note(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        if (noted := _NOTED.get()) is not None:
            noted.append(True)
        self._audit.note(user, deeds)


class AuditMetrics(Protocol):
    """Counts lines."""

    def written(self, lines: int) -> None: ...
    def lost(self, lines: int) -> None: ...


class AuditLog:
    """`run` until cancelled."""

    wanted = True

    def __init__(self, path: Path, meter: AuditMetrics, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError when the file cannot be opened."""
        self._file = path.open("ab", buffering=0)
        self._meter = meter
        self._clock = clock
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._lost = 0
        self._torn = False  # does the file end within a line?
        self._writing = threading.Lock()  # at the end a thread may still be at it

    def note(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        common = {
            "auditID": logs.request_id.get(),
            "stageTimestamp": format_rfc3339(to_micro_time(self._clock.time())),
            **_users(user),
        }
        for deed in deeds:
            self._lost += len(self._waiting) == MAX_WAITING
            self._waiting.append(json.dumps(common | _facts(deed), ensure_ascii=False, separators=(",", ":")))

    async def run(self) -> None:
        try:
            while True:
                await self._clock.sleep(INTERVAL)
                if self._waiting:
                    await asyncio.to_thread(self._write)
        finally:
            self._write()
            with suppress(OSError):  # what could not be written cannot be written now either
                self._file.close()

    def _write(self) -> None:
        with self._writing:
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if lines:
                self._lost += len(lines) - self._append("".join(f"{line}\n" for line in lines).encode(errors="replace"))
            if self._lost:
                log.error("%d lines of the audit log are lost", self._lost, extra=AuditLinesLost(self._lost).extra)
                self._meter.lost(self._lost)
                self._lost = 0

    def _append(self, data: bytes) -> int:
        """The number of lines that are in the file."""
        done = 0
        try:
            if self._torn:
                self._file.write(b"\n")
                self._torn = False
            while done < len(data):
                done += self._file.write(data[done : done + CHUNK])
        except OSError as error:
            log.error("the audit log cannot be written: %s", error)
            self._torn = self._torn or (done > 0 and data[done - 1] != _END)
        written = data.count(b"\n", 0, done)
        self._meter.written(written)
        return written


def _users(user: User) -> dict[str, object]:
    """The caller, and the user that it acts as where that is another one."""
    known = {"username": user.name, "groups": user.groups}
    return {"user": {"username": user.impersonator}, "impersonatedUser": known} if user.impersonator else {"user": known}


def _facts(deed: AuditEvent) -> dict[str, object]:
    resource, _, subresource = deed.action.resource.partition("/")
    reference = {"apiGroup": deed.action.group, "resource": resource, "namespace": deed.namespace, "name": deed.name}
    if subresource:
        reference["subresource"] = subresource
    reference = {field: _cut(name, MAX_NAME) for field, name in reference.items()}
    if deed.revision:
        reference["resourceVersion"] = str(deed.revision)
    refusal = deed.refusal
    status = (
        {"status": "Success"}
        if refusal is None
        else {"status": "Failure", "reason": refusal.reason, "message": _cut(refusal.message, MAX_MESSAGE)}
    )
    return {"verb": deed.action.verb, "objectRef": reference, "responseStatus": status}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
