"""An etcd member with scripted watch responses, for bugs that the real etcd does not have or shows only occasionally."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from aetcd.rpc import WatchRequest, WatchResponse

from pinnace.apiserver.storage.etcd.members import EtcdMember


def puts(*revisions: int, header: int = 0, fragment: bool = False) -> Any:
    """Return a response with a put at each revision. `header` is the store's revision, by default that of the last put."""
    response = WatchResponse(fragment=fragment)
    response.header.revision = header or (revisions[-1] if revisions else 0)
    for revision in revisions:
        event = response.events.add()
        event.kv.key, event.kv.mod_revision, event.kv.create_revision = b"/registry/pods/default/a", revision, 1
    return response


def progress(revision: int) -> Any:
    """Return the response to a progress request when the store is at `revision`."""
    return puts(header=revision)


def canceled(reason: str = "", compact_revision: int = 0) -> Any:
    return WatchResponse(canceled=True, cancel_reason=reason, compact_revision=compact_revision)


class Script:
    """One stream: its responses and its response to each progress request. It stays open and idle after them."""

    def __init__(self, *responses: Any, probed: Any = None) -> None:
        self.requests: list[Any] = []
        self._responses: asyncio.Queue[Any] = asyncio.Queue()
        for response in responses:
            self._responses.put_nowait(response)
        self._probed = probed

    async def write(self, request: Any) -> None:
        self.requests.append(request)
        if request.HasField("progress_request") and self._probed is not None:
            self._responses.put_nowait(self._probed)

    async def read(self) -> Any:
        return await self._responses.get()

    def cancel(self) -> None:
        """Do nothing: the stream holds no resources."""

    @property
    def created_from(self) -> int:
        """The requested start revision of the watch."""
        request: WatchRequest = self.requests[0]
        return int(request.create_request.start_revision)


def member(*scripts: Script) -> EtcdMember:
    """Return a member whose watches use one script each, in order."""
    waiting: list[Script] = list(scripts)
    watch = SimpleNamespace(Watch=lambda **_: waiting.pop(0))
    return cast(EtcdMember, SimpleNamespace(endpoint="etcd-0:2379", watch=watch))


def revisions(batches: Sequence[Any]) -> list[int]:
    """Return the revisions of all changes in these batches."""
    return [change.mod_revision for batch in batches for change in batch.changes]
