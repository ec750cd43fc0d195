"""The informers that all controllers share: one for each kind that one of them asks for."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from controllers.labelled import Labelled, Selecting, anything
from controllers.podfacts import FactBook
from pinnace.api.resources import PODS, Resource, T
from pinnace.api.selectors import LabelSelector
from pinnace.client.client import Client
from pinnace.client.index import Index
from pinnace.client.informer import Handler, Informer, complaint
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending


class Informers:
    """Ask before `run`; kinds that nobody has asked for are not watched."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._informers: dict[Resource[Any], Informer[Any]] = {}
        self._indices: dict[tuple[Resource[Any], Callable[[Any], str]], Index[Any]] = {}
        self._facts: FactBook | None = None
        self._selecting: dict[tuple[Resource[Any], Callable[[Any], LabelSelector]], Selecting[Any]] = {}
        self._labelled: dict[tuple[Resource[Any], Callable[[Any], bool]], Labelled[Any]] = {}

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """All objects of a kind, by store_key. They belong to the informer: do not change them."""
        return self._of(resource).store

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """The same index for the same function. It is up to date when a change is handled."""
        index = self._indices.get((resource, by))
        if index is None:
            index = self._indices[resource, by] = Index(by, self.store(resource).values())
            self.add_handler(resource, index.follow)
        return index

    def labelled(self, resource: Resource[T], only: Callable[[T], bool] = anything) -> Labelled[T]:
        """Likewise, the same for the same function."""
        labelled = self._labelled.get((resource, only))
        if labelled is None:
            labelled = self._labelled[resource, only] = Labelled(only, self.store(resource).values())
            self.add_handler(resource, labelled.follow)
        return labelled

    def selecting(self, resource: Resource[T], selector_of: Callable[[T], LabelSelector]) -> Selecting[T]:
        """Likewise, the same for the same function."""
        selecting = self._selecting.get((resource, selector_of))
        if selecting is None:
            selecting = self._selecting[resource, selector_of] = Selecting(selector_of, self.store(resource).values())
            self.add_handler(resource, selecting.follow)
        return selecting

    @property
    def facts(self) -> FactBook:
        """Of pods."""
        if self._facts is None:
            self._facts = FactBook()
            self.add_handler(PODS, self._facts.follow)
        return self._facts

    def add_handler(self, resource: Resource[T], handler: Handler[T]) -> None:
        self._of(resource).add_handler(handler)

    @property
    def synced(self) -> bool:
        return all(informer.revision for informer in self._informers.values())

    @property
    def healthy(self) -> str | None:
        """None, or what is wrong, for /readyz."""
        return complaint(self._informers.values())

    async def wait_synced(self, timeout: float) -> None:
        """Returns when all have their first state. Raises TimeoutError; `timeout` is for each."""
        await self.wait_for(1, timeout)

    async def wait_for(self, revision: int, timeout: float, among: Iterable[Resource[Any]] = ()) -> None:
        """Returns when everything up to `revision` is known, of these kinds or of all. Raises TimeoutError; `timeout` is for
        each. A controller that waits for the revision of its own last write needs no expectations: what it sees next has it."""
        for informer in map(self._informers.__getitem__, among or list(self._informers)):
            await informer.wait_for(revision, timeout)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(unending("informer", informer.run))

    def _of(self, resource: Resource[T]) -> Informer[T]:
        informer = self._informers.get(resource)
        if informer is None:
            # Announced: each hears at once how far it is when somebody is elected.
            informer = self._informers[resource] = Informer(self._client.of(resource), announced=True, clock=self._clock)
        return informer
