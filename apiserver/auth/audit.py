"""The audit log: one line per written object or refused write, in the order of the decisions.

Lines are JSON, with the field names of Kubernetes' audit.k8s.io/v1 Event at level Metadata: user, verb, objectRef with the
resulting revision, responseStatus, and auditID, which is the request ID. The items of a batch have the same auditID, and the
same annotations of webhooks and policies. Lines do not contain the objects. If the client cancels a write or its deadline
expires, the reason is OutcomeUnknown. Every write call has at least one line, even if it fails before its objects are
processed: its queue wait times out, its request is malformed, or the client cancels it. Reads are logged only if authorization
denies them. Dry runs and events are never logged.

A thread writes the lines to the file every INTERVAL and at shutdown, so calls do not wait for the disk. If the thread falls
behind or the disk is full, lines are lost. The log and a metric count lost lines. After a partial write, the next line starts
on a new line of the file.

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

from pinnace.api.scalars import format_rfc3339, to_micro_time
from pinnace.api.status import Refusal
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.permissions import ResourceAction
from pinnace.runtime import logs
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import AuditLinesLost

log = logging.getLogger(__name__)

INTERVAL = 0.1
"""Seconds between two writes."""
MAX_WAITING = 200_000
"""Maximum number of queued lines. If the queue is full, the oldest line is dropped."""
CHUNK = 1 << 20
"""Maximum bytes per write system call."""
_END = ord("\n")
_NOTED: ContextVar[list[bool] | None] = ContextVar("noted", default=None)
"""A list that all tasks of a call share. It is not empty after the first audit event of the call."""
_ANNOTATIONS: ContextVar[dict[str, str] | None] = ContextVar("annotations", default=None)
"""The annotations of the lines of a call, which all tasks of the call share."""
MAX_ANNOTATIONS = 100
"""Annotations per call."""
MAX_ANNOTATION = 10 << 10
"""Characters of a value, as in Kubernetes."""
MAX_NAME = 316
"""Maximum characters of names and resources: the length of a label key, which no valid name exceeds."""
MAX_MESSAGE = 1024
"""Maximum characters of a refusal's message. A message can quote megabytes of the request, for each item of a batch."""


class AuditEvent(NamedTuple):
    """The result of an action on one object. `revision` is 0 if nothing was written."""

    action: ResourceAction
    namespace: str
    name: str
    revision: int = 0
    refusal: Refusal | None = None


class AuditSink(Protocol):
    """A receiver of audit events."""

    @property
    def enabled(self) -> bool:
        """True if audit events are recorded."""
        ...

    def record(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        """Record events of the current task's call."""
        ...


class NoAudit:
    enabled = False

    def record(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        return


class CallAudit:
    """An AuditSink that also reports whether the current call has recorded events."""

    def __init__(self, audit: AuditSink) -> None:
        self._audit = audit
        self.enabled = audit.enabled

    def begin_call(self) -> None:
        """Start a call in the current task."""
        _NOTED.set([])
        if self.enabled:
            _ANNOTATIONS.set({})

    def has_recorded(self) -> bool:
        """Report whether the call has called `record`, even without events, as a dry run does."""
        return bool(_NOTED.get())

    def record(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        if (has_recorded := _NOTED.get()) is not None:
            has_recorded.append(True)
        self._audit.record(user, deeds)


def annotate(key: str, value: str) -> None:
    """Add an annotation to the lines of the present call. As in Kubernetes, the first value of a key remains."""
    annotations = _ANNOTATIONS.get()
    if annotations is not None and len(annotations) < MAX_ANNOTATIONS:
        annotations.setdefault(key, value[:MAX_ANNOTATION])


class AuditMetrics(Protocol):
    """Counters of audit log lines."""

    def record_written_lines(self, lines: int) -> None: ...
    def record_lost_lines(self, lines: int) -> None: ...


class AuditLog:
    """An AuditSink that writes a file. Run `run` until shutdown, then cancel it."""

    enabled = True

    def __init__(self, path: Path, meter: AuditMetrics, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError if the file cannot be opened."""
        self._file = path.open("ab", buffering=0)
        self._meter = meter
        self._clock = clock
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._lost = 0
        self._torn = False  # True if the file ends with a partial line
        self._writing = threading.Lock()  # at shutdown, a write may still be running in a thread

    def record(self, user: User, deeds: Iterable[AuditEvent]) -> None:
        common = {
            "auditID": logs.request_id.get(),
            "stageTimestamp": format_rfc3339(to_micro_time(self._clock.time())),
            **_user_fields(user),
            **({"annotations": annotations} if (annotations := _ANNOTATIONS.get()) else {}),
        }
        for deed in deeds:
            self._lost += len(self._waiting) == MAX_WAITING
            self._waiting.append(json.dumps(common | _event_fields(deed), ensure_ascii=False, separators=(",", ":")))

    async def run(self) -> None:
        try:
            while True:
                await self._clock.sleep(INTERVAL)
                if self._waiting:
                    await asyncio.to_thread(self._write)
        finally:
            self._write()
            with suppress(OSError):  # the failed write has already been logged
                self._file.close()

    def _write(self) -> None:
        with self._writing:
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if lines:
                self._lost += len(lines) - self._append("".join(f"{line}\n" for line in lines).encode(errors="replace"))
            if self._lost:
                log.error("lost %d lines of the audit log", self._lost, extra=AuditLinesLost(self._lost).extra)
                self._meter.record_lost_lines(self._lost)
                self._lost = 0

    def _append(self, data: bytes) -> int:
        """Append the lines, and return the number of written lines."""
        done = 0
        try:
            if self._torn:
                self._file.write(b"\n")
                self._torn = False
            while done < len(data):
                done += self._file.write(data[done : done + CHUNK])
        except OSError as error:
            log.error("cannot write the audit log: %s", error)
            self._torn = self._torn or (done > 0 and data[done - 1] != _END)
        written = data.count(b"\n", 0, done)
        self._meter.record_written_lines(written)
        return written


def _user_fields(user: User) -> dict[str, object]:
    """Return the caller, and the impersonated user if there is one."""
    known = {"username": user.name, "groups": user.groups}
    return {"user": {"username": user.impersonator}, "impersonatedUser": known} if user.impersonator else {"user": known}


def _event_fields(deed: AuditEvent) -> dict[str, object]:
    resource, _, subresource = deed.action.resource.partition("/")
    reference = {"apiGroup": deed.action.group, "resource": resource, "namespace": deed.namespace, "name": deed.name}
    if subresource:
        reference["subresource"] = subresource
    reference = {field: _truncate(name, MAX_NAME) for field, name in reference.items()}
    if deed.revision:
        reference["resourceVersion"] = str(deed.revision)
    refusal = deed.refusal
    status = (
        {"status": "Success"}
        if refusal is None
        else {"status": "Failure", "reason": refusal.reason, "message": _truncate(refusal.message, MAX_MESSAGE)}
    )
    return {"verb": deed.action.verb, "objectRef": reference, "responseStatus": status}


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
