"""Methods of a service, found by the names in proto/, without a transport: what gRPC and the simulation call alike.

A service object has a coroutine or async generator for each method, named in snake case: `Pods.CreateBatch` is `create_batch`.
A method without one fails at start-up. Responses may be messages or bytes that are encoded already.

    bytes --parse--> message --call--> gate --> seat --> permission --> service --> bytes --> counted until they are taken
                        '-----stream-'   '-------'------------'-----------'-----------'--> Rejected (apiserver.services.errors)

Large requests that hold objects, or are streamed, are read in their seat only (apiserver.flow.cost).

What a stream needed to be opened it needs for as long as it is open (apiserver.services.tenure).
"""

import asyncio
import inspect
import mmap
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from apiserver.auth.audit import CallAudit, Deed, NoAudit
from apiserver.auth.authentication import MASTERS
from apiserver.auth.authorizer import Authorizer
from apiserver.auth.permissions import REVIEWS_GROUP, permission_of
from apiserver.errors import Rejected, bad_request, caller_left
from apiserver.flow.account import LARGE
from apiserver.flow.control import MAX_STREAMS, Exempt, FlowControl, Seat, Threshold, sit
from apiserver.flow.cost import SMALL, Unread, items_in, width_of, width_of_batch, width_of_bytes
from apiserver.flow.levels import level_of
from apiserver.registry.fencing import Fences
from apiserver.services import metrics
from apiserver.services.context import Context
from apiserver.services.errors import to_refusal
from apiserver.services.tenure import Tenure, Tenures
from pinnace.api import wire
from pinnace.api.resources import EVENTS
from pinnace.api.status import Code, Refusal
from pinnace.api.wire import Envelope

MAX_REFLECTIONS = 10
"""Streams of reflection that a user may have open, masters too. A tool has one."""
MAX_BATCH = 1000
"""Items of one batch request."""
ROOM = 16
"""Levels that must be left around a request: what comes with it is told in lists and watches, and others may put it into
messages of theirs."""
MAX_LEVELS = wire.LIMIT - ROOM
"""Of messages in messages, the request itself included; known fields have less than 20."""
HEADROOM = 3
"""Times the size of a large answer that must be free before gRPC gets it. gRPC copies it, and ends the process when it cannot
(std::bad_alloc), where Python raises MemoryError."""
_UNREADABLE = (
    f"the request is no message of this method's type (compare with proto/), or nested deeper than {MAX_LEVELS} levels"
)
_LEFT = Refusal(Code.UNAVAILABLE, "Canceled", "the caller left before the call began: nothing happened")
"""For the record."""
_NO_AUDIT = CallAudit(NoAudit())
Gate = Callable[[], Refusal | None]
"""Asked before each call: why the server takes none now; None: it does."""


class Method:
    """`path` is gRPC's: "/pinnace.v1.Pods/Get"."""

    def __init__(
        self,
        descriptor: MethodDescriptor,
        service: object,
        gate: Gate,
        flow: FlowControl,
        authorizer: Authorizer,
        tenures: Tenures,
        fences: Fences,
        audit: CallAudit,
    ) -> None:
        """Raises TypeError when the service has no such method, or one of another form, and LookupError when nobody has said
        what permission it needs (apiserver.auth.permissions)."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", descriptor.name).lower()
        self.name = f"{descriptor.containing_service.full_name}/{descriptor.name}"
        self.path = f"/{self.name}"
        self.client_streaming: bool = descriptor.client_streaming
        self.server_streaming: bool = descriptor.server_streaming
        self._message = message_factory.GetMessageClass(descriptor.input_type)
        self._envelope = Envelope(self._message, ROOM)
        self._batched = "items" in descriptor.input_type.fields_by_name
        self._is_heavy = self.client_streaming or self._batched or "object" in descriptor.input_type.fields_by_name
        self._watches = descriptor.name == "Watch" and "options" in descriptor.input_type.fields_by_name
        self._gate = gate
        self._flow = flow
        self._authorizer = authorizer
        self._tenures = tenures
        self._fences = fences
        self.permission = permission_of(descriptor)
        action = self.permission.actions(self._message())[0]
        self._writes = not self.server_streaming and action.verb not in ("get", "list")
        self._audit = audit
        self._audited = self._writes and audit.wanted and action.resource != EVENTS.plural and action.group != REVIEWS_GROUP
        self._level_of = level_of(action, pulse=self.client_streaming)
        about_nothing = action.resource.startswith("/")
        self._discovers = self.client_streaming and about_nothing
        self.is_paced = about_nothing or action.resource.startswith("selfsubject")
        """Every user may call it, and has no reason to do so often: its calls are paced as refusals are."""
        self._width_of = width_of(descriptor, service)
        self._meter = metrics.Requests(action, batch=self._batched, connects=self.client_streaming)
        self._function: Any = getattr(service, name, None)
        if self._function is None:
            raise TypeError(f"{type(service).__name__} has no {name}() for {self.name}")
        if self.client_streaming and not self.server_streaming:
            raise TypeError(f"{self.name}: client streams without a response stream are not supported")
        if self.server_streaming and not inspect.isasyncgenfunction(self._function):
            raise TypeError(f"{self.name}: expected an async generator")

    def parse(self, data: bytes) -> Message | Unread | None:
        """The request, or what is read when it is its turn. Bytes that are no such message, or nested deeper than MAX_LEVELS,
        become None, which `call` and `stream` refuse: raised from here, gRPC would log a traceback for each and answer UNKNOWN.
        (In a stream of requests they become an empty message, which is nonsense to whoever hears it.)"""
        return Unread(data) if self._is_heavy and len(data) > SMALL else self._read(data)

    def _read(self, data: bytes) -> Message | None:
        try:
            return self._envelope.read(data)
        except DecodeError:
            return self._message() if self.client_streaming else None

    async def call(self, request: Message | Unread | None, context: Context) -> bytes:
        """Of a method with one response: the encoded response. Raises Rejected."""
        self._meter.came()
        started = time.perf_counter()
        code = Code.OK
        begun = False
        if self._audited:
            self._audit.begin()
        try:
            with self._enter(request, context) as seat:
                if seat.waits:
                    await seat.taken()
                sit(seat)
                if isinstance(request, Unread):
                    request = self._sound(self._read(request.data))
                await self._authorize(request, context)
                if self._writes:
                    await self._fences.enter(context.user)
                begun = True
                answer = _encode(await self._function(request, context))
                if self._audited:
                    self._note(request, context, None)
                if len(answer) >= LARGE:
                    if not self._writes:
                        _require_memory(HEADROOM * len(answer))
                    context.when_taken(seat.answer(len(answer), refusable=not self._writes))
                return answer
        except asyncio.CancelledError:
            code = Code.DEADLINE_EXCEEDED
            if self._audited:
                self._note(request, context, caller_left() if begun else _LEFT)
            raise
        except Exception as error:
            refusal = to_refusal(error, self.name, writes=self._writes)
            code = refusal.code
            if self._audited:
                self._note(request, context, refusal)
            raise Rejected(refusal) from error
        finally:
            self._meter.ended(code, time.perf_counter() - started)

    async def stream(self, request: Message | AsyncIterator[Message] | None, context: Context) -> AsyncGenerator[bytes, None]:
        """Of a method that streams: encoded responses. `request` is an iterator when requests are streamed too. It has a seat
        while it is opened: until the first response, if that is to be the present state; where requests are streamed from the
        first of them on. Raises Rejected."""
        code = Code.OK
        with self._meter.stream():
            try:
                with (
                    self._counted(context),
                    self._enter_stream(request, context) as seat,
                    self._hold(request, context) as tenure,
                ):
                    if seat.waits:
                        await seat.taken()
                    sit(seat)
                    await self._authorize(request, context)
                    if self._opened(request):
                        seat.leave()
                    heard = seat if isinstance(seat, Threshold) else request
                    async with aclosing(self._function(heard, context)) as responses:
                        async for response in tenure.of(responses):
                            seat.leave()
                            yield _encode(response)
                    if isinstance(seat, Threshold) and seat.refused is not None:
                        raise seat.refused
            except Exception as error:
                refusal = to_refusal(error, self.name)
                code = refusal.code
                raise Rejected(refusal) from error
            finally:
                self._meter.stream_ended(code)

    def _note(self, request: Message | Unread | None, context: Context, refusal: Refusal | None) -> None:
        """For the audit log, unless the call is there already. What is not read yet does not say what it is about."""
        if self._audit.noted():
            return
        actions, find = self.permission
        known = isinstance(request, Message) and find is not None
        action, targets = actions(request if known else self._message())[0], find(request) if known and find else ()
        deeds = [Deed(action, each.namespace, each.name, refusal=refusal) for each in targets]
        self._audit.note(context.user, deeds or [Deed(action, "", "", refusal=refusal)])

    def _counted(self, context: Context) -> AbstractContextManager[None]:
        """While a stream is open. To open a stream of requests takes no seat: a flow has so many at most. Raises Rejected."""
        if not self.client_streaming:
            return nullcontext()
        user = context.user
        level = self._level_of(user) if self._discovers or MASTERS not in user.groups else None
        return self._flow.stream(level, user.name, MAX_REFLECTIONS if self._discovers else MAX_STREAMS)

    def _enter(self, request: Message | Unread | None, context: Context) -> Seat | Exempt:
        self._pass_gate()
        if isinstance(request, Unread):
            width = self._width_of_unread(request)
        elif self.client_streaming:
            width = width_of_bytes(request.ByteSize() if request is not None else 0)
        else:
            width = self._width_of(self._sound(request))
        user, remaining = context.user, context.time_remaining()
        return self._flow.enter(self._level_of(user), user.name, width, request, remaining, writes=self._writes)

    def _width_of_unread(self, request: Unread) -> int:
        width = width_of_bytes(request.ByteSize())
        if self._batched:
            number = self._message.DESCRIPTOR.fields_by_name["items"].number
            width = max(width, width_of_batch(items_in(request.data, number, MAX_BATCH)))
        return width

    def _enter_stream(self, request: Message | AsyncIterator[Message] | None, context: Context) -> Seat | Exempt:
        if request is None or isinstance(request, Message):
            return self._enter(request, context)
        self._pass_gate()
        return Threshold(request, lambda first: self._enter(first, context), self._said, each=self._discovers)

    def _said(self, data: bytes) -> Message:
        """A request of a stream."""
        return self._read(data) or self._message()

    def _pass_gate(self) -> None:
        """Raises Rejected."""
        if refusal := self._gate():
            raise Rejected(refusal)

    def _sound(self, request: Message | None) -> Message:
        """Before anybody asks for each item whether it is permitted. Raises Rejected."""
        if request is None:
            raise Rejected(bad_request(_UNREADABLE))
        if self._batched:
            _check_batch(request)
        return request

    def _hold(self, request: Any, context: Context) -> AbstractContextManager[Tenure]:
        seconds = self._tenures.of_watch(request.options.timeoutSeconds) if self._watches else None
        actions, find = self.permission
        questions = [(action, tuple(find(request))) for action in actions(request)] if find is not None else ()
        return self._tenures.hold(context.credential, context.user, seconds, questions)

    def _opened(self, request: Any) -> bool:
        """Is there nothing more to do for a stream than to wait? A watch from the present state has that to tell first; what is
        wanted of one of requests is not known yet."""
        if not self._watches:
            return not self.client_streaming
        options = request.options
        if options.HasField("sendInitialEvents"):
            return not options.sendInitialEvents
        return options.resourceVersion not in ("", "0")

    async def _authorize(self, request: object, context: Context) -> None:
        """A stream of requests is let in: its service asks what they need as it hears them."""
        actions, find = self.permission
        if find is None:
            return
        targets = partial(find, request)
        for action in actions(request):
            await self._authorizer.check(context.user, action, targets)


def _check_batch(request: Any) -> None:
    if len(request.items) > MAX_BATCH:
        raise Rejected(bad_request(f"{len(request.items)} items in one batch: send at most {MAX_BATCH}"))


def _require_memory(size: int) -> None:
    """Raises OSError when there is no room for so many bytes. None of them is touched: it costs two calls of the system."""
    mmap.mmap(-1, size).close()


def methods_of(
    descriptors: Iterable[MethodDescriptor],
    service: object,
    gate: Gate,
    flow: FlowControl,
    authorizer: Authorizer,
    tenures: Tenures,
    fences: Fences,
    audit: CallAudit = _NO_AUDIT,
) -> Mapping[str, Method]:
    """By path. Raises TypeError when the service lacks one of the methods, LookupError when one has no permission."""
    methods = (Method(each, service, gate, flow, authorizer, tenures, fences, audit) for each in descriptors)
    return {method.path: method for method in methods}


def _encode(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
