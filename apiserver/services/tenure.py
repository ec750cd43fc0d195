"""For how long a stream stays open: what is asked of a call once is asked of a stream again and again.

    open --its time is up, or who has shown this is somebody else now--> ends without an error: the caller opens another
         --its certificate has ended, its token is known no longer-----> UNAUTHENTICATED
         --roles have changed, and it is not allowed any more----------> PERMISSION_DENIED

Guarantees: within some CHECK_INTERVAL of the moment in which this server knows of it. Nothing is told in between that is later
than that: a stream that waits is broken off, one that is being read ends before what comes next. An etcd that cannot be reached
ends nothing: whether it is allowed is asked again when it can.

It costs a look at each credential in each interval, and a question for each distinct one when roles have changed, however many
streams there are. What the node authoriser allows depends on nodes, which change all the time: it is asked again with the roles
only, and when the stream is opened anew.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple

from apiserver.auth.authentication import Credential, User
from apiserver.auth.authorizer import Authorizer
from apiserver.auth.permissions import Action, Target
from apiserver.cacher.errors import CacheError
from apiserver.errors import Rejected
from apiserver.storage.interface import StorageError
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import Clock

MIN_TIMEOUT = 1800.0
"""Seconds for which a watch stays open at least, unless it asks for less; twice that at most, drawn by lot, so that those that
began together do not come back together."""
CHECK_INTERVAL = 1.0


class Question(NamedTuple):
    user: User
    action: Action
    targets: frozenset[Target]


class Tenure:
    """Of one stream. Iterated in place of the responses `of` which it is."""

    __slots__ = ("_ended", "_reader", "_refusal", "_responses", "credential", "questions", "user")

    def __init__(self, credential: Credential, user: User) -> None:
        self.credential = credential
        self.user = user
        self.questions: list[Question] = []
        self._responses: AsyncIterator[bytes]
        self._reader: asyncio.Task[object] | None = None  # that waits for a response
        self._ended = False
        self._refusal: Refusal | None = None

    def ask(self, action: Action, targets: Collection[Target]) -> None:
        """It goes on for as long as this is allowed. To be said before it is asked for the first time."""
        self.questions.append(Question(self.user, action, frozenset(targets)))

    def end(self, refusal: Refusal | None = None) -> None:
        """None: without an error."""
        if self._ended:
            return
        self._ended, self._refusal = True, refusal
        if self._reader is not None:
            self._reader.cancel()

    def of(self, responses: AsyncIterator[bytes]) -> "Tenure":
        self._responses = responses
        return self

    def __aiter__(self) -> "Tenure":
        return self

    async def __anext__(self) -> bytes:
        """Raises Rejected at the end with a refusal."""
        if self._ended:
            self._stop()
        self._reader = reader = asyncio.current_task()
        try:
            return await anext(self._responses)
        except BaseException:
            if self._ended and reader is not None and not reader.uncancel():  # else somebody else has cancelled it, too
                self._stop()
            raise
        finally:
            self._reader = None

    def _stop(self) -> None:
        if self._refusal is not None:
            raise Rejected(self._refusal)
        raise StopAsyncIteration


class Tenures:
    """Those of a server. `role_versions` are compared: whether roles have changed; None: nobody can say now."""

    def __init__(
        self,
        authorizer: Authorizer,
        role_versions: Callable[[], Hashable | None],
        min_timeout: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._authorizer = authorizer
        self._role_versions = role_versions
        self._min_timeout = min_timeout
        self._clock = clock
        self._rng = rng
        self._open: dict[Tenure, None] = {}
        self._asked = role_versions()

    @contextmanager
    def hold(
        self, credential: Credential, user: User, seconds: float | None, questions: Iterable[tuple[Action, Collection[Target]]]
    ) -> Iterator[Tenure]:
        """While a stream is open. `seconds`: at most; None: without end. `questions`: as `Tenure.ask`."""
        tenure = Tenure(credential, user)
        for action, targets in questions:
            tenure.ask(action, targets)
        timer = asyncio.get_running_loop().call_later(seconds, tenure.end) if seconds is not None else None
        self._open[tenure] = None
        _OWN.set(tenure)
        try:
            yield tenure
        finally:
            del self._open[tenure]
            if timer is not None:
                timer.cancel()

    def of_watch(self, asked: int) -> float:
        """Seconds; `asked`: what the caller wants at most, 0: nothing."""
        longest = self._min_timeout * self._rng.uniform(1.0, 2.0)
        return min(float(asked), longest) if asked > 0 else longest

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            self._identify()
            if (versions := self._role_versions()) is not None and versions != self._asked and await self._ask():
                self._asked = versions

    def _identify(self) -> None:
        known: dict[Credential, User | Refusal] = {}
        for tenure in list(self._open):
            if (found := known.get(tenure.credential)) is None:
                found = known[tenure.credential] = _identified(tenure.credential)
            if isinstance(found, Refusal):
                tenure.end(found)
            elif found != tenure.user:
                tenure.end()

    async def _ask(self) -> bool:
        """Is everything answered?"""
        by_question: dict[Question, list[Tenure]] = {}
        for tenure in self._open:
            for question in tenure.questions:
                by_question.setdefault(question, []).append(tenure)
        complete = True
        for question, tenures in by_question.items():
            try:
                await self._authorizer.check(question.user, question.action, partial(iter, question.targets))
            except Rejected as rejected:
                if rejected.refusal.code is not Code.PERMISSION_DENIED:
                    complete = False
                    continue
                for tenure in tenures:
                    tenure.end(rejected.refusal)
            except (CacheError, StorageError):
                complete = False
            await asyncio.sleep(0)
        return complete


def _identified(credential: Credential) -> User | Refusal:
    try:
        return credential.user()
    except Rejected as rejected:
        return rejected.refusal


_OWN: ContextVar[Tenure] = ContextVar("tenure")


def own() -> Tenure:
    """Of the stream that the task serves."""
    return _OWN.get()
