"""One webhook: a question is asked about each change, and those of one moment go together in one message.

    ask --> waiting --next turn of the event loop--> a message of at most MAX_ITEMS --> its answer, or a failure of all in it

Every question ends within the webhook's timeout. A webhook that is slow has its own queue: who does not ask it notices nothing.
At most MAX_WAITING questions are open; of one user no more than GREED for each that he leaves free. More are refused at once,
whatever the failurePolicy: that our queue is full is no failure of the webhook.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

from apiserver.errors import Rejected
from apiserver.registry.admission import Change, Operation
from apiserver.registry.patching import RESIZE, STATUS, patching
from apiserver.webhooks.configuration import WebhookConfiguration
from pinnace.api import admission_pb2 as pb
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.patch import parse
from pinnace.api.status import Code, Refusal, decode
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.api.wire import portions
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import WebhookFailed

log = logging.getLogger(__name__)

MAX_ITEMS = 500
MAX_WAITING = 10_000
GREED = 4
"""One user who is alone has 8,000, and leaves two batches free for who comes next (as with seats: apiserver.flow.levels)."""
RETRY_AFTER = 1.0
"""Seconds."""
QUIET = 30.0
"""Seconds for which failures are only counted after one was logged."""
_HINT = "whoever runs it can see why; its address and failurePolicy are in --admission-control-config-file of the API servers"
_REFUSALS = frozenset(Code) - {Code.OK}
_OPERATIONS = {
    Operation.CREATE: pb.CREATE,
    Operation.UPDATE: pb.UPDATE,
    Operation.UPDATE_STATUS: pb.UPDATE,
    Operation.RESIZE: pb.UPDATE,
    Operation.DELETE: pb.DELETE,
}
_SUBRESOURCES = {Operation.UPDATE_STATUS: STATUS, Operation.RESIZE: RESIZE}


Amend = Callable[[Any], Any]
"""A new object from an old one. Raises Rejected."""


class WebhookError(Exception):
    """It could not be asked, or did not answer anything that can be read; the message says why."""


class Transport(Protocol):
    async def review(self, request: pb.ReviewRequest, timeout: float) -> pb.ReviewResponse:
        """Within `timeout` seconds. Raises WebhookError."""
        ...

    async def close(self) -> None: ...


class Meter(Protocol):
    """Counts. `kind`: "admit" of a mutating webhook, "validating" of the others, as in Kubernetes."""

    def answered(self, name: str, kind: str, operation: str, allowed: bool, seconds: float) -> None: ...

    def failed(self, name: str, kind: str, operation: str, ignored: bool, seconds: float) -> None: ...

    def crowded(self, name: str, kind: str, operation: str) -> None:
        """It was not asked: too many others wait for it."""
        ...


class _Question(NamedTuple):
    item: pb.AdmissionRequest
    answer: asyncio.Future[pb.AdmissionResponse]


class Webhook:
    def __init__(self, configuration: WebhookConfiguration, transport: Transport, meter: Meter, clock: Clock) -> None:
        self.configuration = configuration
        self._transport = transport
        self._meter = meter
        self._clock = clock
        self._kind = "admit" if configuration.mutating else "validating"
        self._numbers = count(1)
        self._open = 0
        self._open_of = Counter[str]()  # by the names of users
        self._waiting: list[_Question] = []
        self._calls: set[asyncio.Task[None]] = set()  # the event loop alone would forget them
        self._told: float | None = None  # when a failure was logged
        self._untold = 0

    async def ask(self, change: Change) -> Any:
        """The object as the webhook wants it: the very one, if it is none that changes objects. Raises Rejected."""
        configuration, name = self.configuration, self.configuration.name
        if change.request.dry_run and not configuration.dry_run:
            message = f'admission webhook "{name}" does not support dry run'
            raise Rejected(Refusal(Code.INVALID_ARGUMENT, "BadRequest", message))
        operation, began = pb.Operation.Name(_OPERATIONS[change.operation]), self._clock.monotonic()
        if crowd := self._crowd(change.request.user.name):
            self._meter.crowded(name, self._kind, operation)
            message = f'too many requests, please try again later: {crowd} wait for admission webhook "{name}" already'
            raise Rejected(Refusal(Code.UNAVAILABLE, "TooManyRequests", message, retry_after=RETRY_AFTER))
        try:
            answer = await self._answer(change)
            amend = self._amending(change, answer)
        except WebhookError as error:
            ignored, seconds = configuration.ignore_failures, self._clock.monotonic() - began
            self._meter.failed(name, self._kind, operation, ignored, seconds)
            self._tell(error)
            if ignored:
                return change.obj
            message = f'Internal error occurred: failed calling webhook "{name}": {error}'
            raise Rejected(Refusal(Code.INTERNAL, "InternalError", message, metadata=(("hint", _HINT),))) from None
        self._meter.answered(name, self._kind, operation, answer.allowed, self._clock.monotonic() - began)
        if not answer.allowed:
            raise Rejected(self._denial(answer))
        return self._amended(change, amend) if amend is not None else change.obj

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await self._transport.close()

    def _tell(self, error: WebhookError) -> None:
        now = self._clock.monotonic()
        if self._told is not None and now - self._told < QUIET:
            self._untold += 1
            return
        more = f" ({self._untold} more before)" if self._untold else ""
        name, ignored = self.configuration.name, self.configuration.ignore_failures
        done = "written without it" if ignored else "refused"
        failed = WebhookFailed(name, ignored, self._untold).extra
        log.warning("failed calling webhook %s, %s: %s%s", name, done, error, more, extra=failed)
        self._told, self._untold = now, 0

    def _crowd(self, user: str) -> str:
        """Who leave no room for another question of the user; "": there is some."""
        own, free = self._open_of[user], MAX_WAITING - self._open
        if own and own >= GREED * free:
            return f'{own:,} questions of user "{user}"'
        return "" if free > 0 else f"{MAX_WAITING:,} questions"

    async def _answer(self, change: Change) -> pb.AdmissionResponse:
        user = change.request.user.name
        loop = asyncio.get_running_loop()
        question = _Question(_item(str(next(self._numbers)), change), loop.create_future())
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(question)
        self._open += 1
        self._open_of[user] += 1
        try:
            async with asyncio.timeout(self.configuration.timeout):
                return await question.answer
        except TimeoutError:
            raise WebhookError(f"no answer within {self.configuration.timeout} s") from None
        finally:
            self._open -= 1
            self._open_of[user] -= 1
            if not self._open_of[user]:
                del self._open_of[user]

    def _send(self) -> None:
        """Whoever has asked since: those who have not given up."""
        waiting, self._waiting = self._waiting, []
        waiting = [question for question in waiting if not question.answer.done()]
        for portion in portions(waiting, MAX_ITEMS, size=lambda question: question.item.ByteSize()):
            call = asyncio.create_task(self._call(portion))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, questions: Sequence[_Question]) -> None:
        request = pb.ReviewRequest(items=[question.item for question in questions])
        try:
            response = await self._transport.review(request, self.configuration.timeout)
        except WebhookError as error:
            for question in questions:
                _settle(question, error)
            return
        answers = {answer.uid: answer for answer in response.items}
        for question in questions:
            _settle(question, answers.get(question.item.uid) or WebhookError("its answer lacks the item"))

    def _denial(self, answer: pb.AdmissionResponse) -> Refusal:
        """In Kubernetes' words (pkg/admission/plugin/webhook/errors of k8s.io/apiserver)."""
        denied = f'admission webhook "{self.configuration.name}" denied the request'
        if answer.status.code not in _REFUSALS:
            answer.status.code = Code.INVALID_ARGUMENT
        said = decode(answer.status)
        explanation = said.message or said.reason
        message = f"{denied}: {explanation}" if explanation else f"{denied} without explanation"
        return Refusal(said.code, said.reason or "AdmissionDenied", message, said.violations)

    def _amending(self, change: Change, answer: pb.AdmissionResponse) -> Amend | None:
        """What its patch does; None: nothing. Raises WebhookError when it cannot be read, or the webhook is one that judges."""
        if not answer.patch:
            return None
        if not self.configuration.mutating:
            raise WebhookError("received invalid webhook response: validating webhook may not return response.patch")
        if not answer.allowed:
            return None
        request = PatchRequest(name=_about(change).name, type=answer.patchType or PatchRequest.MERGE, patch=answer.patch)
        try:
            amend = patching(change.resource, request)
        except Rejected as rejected:
            raise WebhookError(rejected.refusal.message) from None
        return None if change.obj is None and not parse(request.patch, request.type) else amend

    def _amended(self, change: Change, amend: Amend) -> Any:
        if change.obj is None:
            raise self._misbehaved(" attempted to modify the object, which is not supported for this operation")
        try:
            return amend(change.obj)
        except Rejected as rejected:
            raise self._misbehaved(f": {rejected.refusal.message}") from None

    def _misbehaved(self, how: str) -> Rejected:
        message = f'Internal error occurred: admission webhook "{self.configuration.name}"{how}'
        return Rejected(Refusal(Code.INTERNAL, "InternalError", message, metadata=(("hint", _HINT),)))


def _settle(question: _Question, answer: pb.AdmissionResponse | WebhookError) -> None:
    if question.answer.done():  # who asked does not wait any more
        return
    if isinstance(answer, WebhookError):
        question.answer.set_exception(answer)
    else:
        question.answer.set_result(answer)


def _about(change: Change) -> ObjectMeta:
    obj = change.obj or change.old
    assert obj is not None
    return obj.metadata


def _item(uid: str, change: Change) -> pb.AdmissionRequest:
    of, user = _about(change), change.request.user
    return pb.AdmissionRequest(
        uid=uid,
        apiVersion=change.resource.api_version,
        kind=change.resource.kind,
        resource=change.resource.plural,
        subResource=_SUBRESOURCES.get(change.operation, ""),
        operation=_OPERATIONS[change.operation],
        namespace=of.namespace,
        name=of.name,
        username=user.name,
        groups=user.groups,
        object=change.obj.SerializeToString() if change.obj is not None else b"",
        oldObject=change.old.SerializeToString() if change.old is not None else b"",
        dryRun=change.request.dry_run,
    )
