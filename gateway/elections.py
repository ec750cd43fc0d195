"""Elections in pinnace.io/v1 (read-only): the leader with its token, the candidates, and the terms.

The API servers stream changes (Elections.Watch), so nothing is polled. The resourceVersion of an election is the revision of
its last change. A watch from a resourceVersion first returns the elections that have changed since.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from pinnace.api.elections_pb2 import (
    Election,
    ElectionHistoryRequest,
    ElectionHistoryResponse,
    ElectionState,
    ElectionWatchResponse,
    GetElectionRequest,
    ListElectionsRequest,
    ListElectionsResponse,
    Term,
    WatchElectionsRequest,
)
from pinnace.api.keys_pb2 import ListKeysRequest, ListKeysResponse
from pinnace.api.resources import ELECTIONS_PREFIX
from pinnace.api.scalars import format_rfc3339, to_seconds, to_time
from pinnace.api.selectors import SelectorError, parse_fields, parse_labels
from pinnace.client.errors import ApiError, Expired, Forbidden, NotFound, Unauthenticated
from pinnace.gateway.backend import Backend, await_first_response
from pinnace.gateway.errors import convert_error
from pinnace.gateway.http import JSON, Request, Response, bad_request, dump_json, not_found
from pinnace.gateway.list_options import check_list_options, check_watch_options
from pinnace.gateway.media_types import TABLE, ResponseFormat, negotiate
from pinnace.gateway.objects import respond_document
from pinnace.gateway.routes import Route
from pinnace.gateway.shared_watches import OPENING, SILENCE
from pinnace.gateway.tables import read_include_object
from pinnace.gateway.watch_events import INITIAL_EVENTS_END
from pinnace.gateway.watches import BOOKMARK_INTERVAL
from pinnace.printers.columns import NONE, format_age

KIND, LIST_KIND, API_VERSION = "Election", "ElectionList", "pinnace.io/v1"
MAX_TERMS = 100
"""The maximum number of terms of an election that a watch stores."""
_SERVICE = "/pinnace.v1.Elections/"
_KEYS = "/pinnace.v1.Keys/List"
_COLUMNS = (
    ("Name", "string", "name", 0),
    ("Holder", "string", "", 0),
    ("Token", "integer", "", 0),
    ("Age", "string", "", 0),
    ("Heartbeat", "string", "", 0),
    ("Waiting", "string", "", 0),
    ("Terms", "integer", "", 0),
    ("Last End", "string", "", 1),
)
"""Name, type, format and priority. Age is the age of the current term. Heartbeat is the time since the leader's last
heartbeat, "<unknown>" without the permission to list keys and in a watch. Waiting lists the candidates in their order."""
_ERRORS_SHOWN = (Expired, Forbidden, Unauthenticated)


_TIME = {"type": "string", "format": "date-time"}
_TERM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A term of a leader.",
    "required": ["holder", "token", "acquireTime"],
    "properties": {
        "holder": {"type": "string", "description": "The name of the leader."},
        "token": {"type": "integer", "format": "int64", "description": "The fencing token. A later term has a higher token."},
        "acquireTime": _TIME | {"description": "When the term began."},
        "endTime": _TIME | {"description": "When the term ended. Unset for the current term."},
        "lastHeartbeatTime": _TIME | {"description": "The last heartbeat of a leader that did not act until the end."},
        "reason": {"type": "string", "description": "Why the term ended."},
        "presumed": {"type": "boolean", "description": "Whether the end is derived from the start of the next term."},
    },
}
_CANDIDATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A candidate that waits.",
    "properties": {
        "holder": {"type": "string", "description": "The name of the candidate."},
        "since": _TIME | {"description": "Since when it waits."},
    },
}
STATUS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "The leader, the candidates and the terms of the election.",
    "properties": {
        "holder": {"type": "string", "description": "The name of the leader. Unset without a leader."},
        "token": {"type": "integer", "format": "int64", "description": "The fencing token of the leader."},
        "acquireTime": _TIME | {"description": "When the leader was elected."},
        "schedulerNames": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The schedulers whose pods the leader may bind.",
        },
        "candidates": {"type": "array", "items": _CANDIDATE_SCHEMA, "description": "The other candidates, in their order."},
        "terms": {"type": "array", "items": _TERM_SCHEMA, "description": "The last terms, the oldest first."},
    },
}
"""The schema of an election's status, which is not generated from a message."""


class Elections:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, request: Request, route: Route) -> Response:
        form = negotiate(request.headers.get("accept", ""), (TABLE,))
        history = ElectionHistoryResponse.FromString(
            await self._call(request, route, "History", ElectionHistoryRequest(name=route.name))
        )
        election = Election(name=route.name)
        try:
            message = GetElectionRequest(name=route.name)
            data = await self._backend.call(request, f"{_SERVICE}Get", message, retry=True)
            election = Election.FromString(data)
        except NotFound:
            if not history.items:
                raise not_found(f"{route.resource.plural}.{route.resource.group}", route.name) from None
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None
        revision = max((election.token, *(term.token for term in history.items)))
        state = ElectionState(election=election, terms=history.items, revision=revision)
        if form.transform:
            beats = await self._read_heartbeat_ages(request)
            return respond_document(_election_table(request, form, [state], str(revision), time.time(), beats), form)
        return respond_document(_type_meta(KIND) | _election_document(state), form)

    async def list(self, request: Request, route: Route) -> Response:
        form = negotiate(request.headers.get("accept", ""), (TABLE,))
        check_list_options(request)
        selects = _parse_selector(request)[0]
        data = await self._call(request, route, "List", ListElectionsRequest(history=True))
        list_elections_response = ListElectionsResponse.FromString(data)
        states = [state for state in list_elections_response.states if selects(state.election)]
        if form.transform:
            beats = await self._read_heartbeat_ages(request)
            return respond_document(
                _election_table(request, form, states, str(list_elections_response.revision), time.time(), beats), form
            )
        metadata = {"resourceVersion": str(list_elections_response.revision)}
        return respond_document(
            _type_meta(LIST_KIND) | {"metadata": metadata, "items": [_election_document(state) for state in states]}, form
        )

    async def watch(self, request: Request, route: Route) -> Response:
        """Start a watch. Raises ApiStatus if it cannot be started."""
        form = negotiate(request.headers.get("accept", ""), (TABLE,))
        check_watch_options(request)
        selects, name = _parse_selector(request)
        message = WatchElectionsRequest(name=route.name or name)
        try:
            stream = await self._backend.stream(request, f"{_SERVICE}Watch", message, ElectionWatchResponse)
            first = await await_first_response(stream, OPENING, SILENCE)
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None
        return Response(200, _ElectionWatch(request, form, stream, first, selects).encoded_events(), JSON, is_live=True)

    async def _read_heartbeat_ages(self, request: Request) -> Mapping[str, float]:
        """Return the seconds since the last heartbeat of each leader, by election: a heartbeat renews the lease of its key."""
        message = ListKeysRequest(prefix=ELECTIONS_PREFIX, keys_only=True, leases=True)
        try:
            list_keys_response = ListKeysResponse.FromString(await self._backend.call(request, _KEYS, message, retry=True))
        except ApiError:
            return {}
        ages = {item.key: item.lease_age_seconds for item in list_keys_response.items if item.HasField("lease_age_seconds")}
        return {key.removeprefix(ELECTIONS_PREFIX): age for key, age in ages.items()}

    async def _call(self, request: Request, route: Route, method: str, message: Message) -> bytes:
        try:
            return await self._backend.call(request, f"{_SERVICE}{method}", message, retry=True)
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None


class _ElectionWatch:
    """A watch that has started."""

    def __init__(
        self,
        request: Request,
        form: ResponseFormat,
        stream: Any,
        first: "asyncio.Future[Any]",
        selects: Callable[[Election], bool],
    ) -> None:
        self._request = request
        self._form = form
        self._stream = stream
        self._first: asyncio.Future[Any] | None = first
        self._selects = selects
        self._after = request.number("resourceVersion") or 0
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._bookmarked = time.monotonic()
        seconds = request.number("timeoutSeconds")
        self._ends = time.monotonic() + seconds if seconds else None
        self._known: dict[str, ElectionState] = {}

    async def encoded_events(self) -> AsyncIterator[bytes]:
        try:
            yield b""  # the headers
            response = await self._read_response()
            if response is None:
                return
            for state in response.events:
                self._known[state.election.name] = state
                if self._selects(state.election) and state.revision > self._after:
                    yield self._encode_event("ADDED", state)
            if self._request.flag("sendInitialEvents"):
                yield self._encode_bookmark(response.revision, initial_end=True)
            while (response := await self._read_response()) is not None:
                for change in response.events:
                    kind = "MODIFIED" if change.election.name in self._known else "ADDED"
                    state = self._merge_terms(change)
                    if self._selects(state.election):
                        yield self._encode_event(kind, state)
                if self._bookmarks and time.monotonic() - self._bookmarked >= BOOKMARK_INTERVAL:
                    yield self._encode_bookmark(response.revision)
        except ApiError as error:
            if isinstance(error, _ERRORS_SHOWN):
                yield dump_json({"type": "ERROR", "object": convert_error(error).document})
        finally:
            self._stream.cancel()

    async def _read_response(self) -> ElectionWatchResponse | None:
        """Return the next response, or None at the end of the stream or of the watch's timeout."""
        reading, self._first = self._first or asyncio.ensure_future(self._stream.read(SILENCE)), None
        left = self._ends - time.monotonic() if self._ends is not None else None
        done, _ = await asyncio.wait((reading,), timeout=max(left, 0) if left is not None else None)
        if not done:
            reading.cancel()
            return None
        watch_response: ElectionWatchResponse | None = reading.result()
        return watch_response

    def _merge_terms(self, change: ElectionState) -> ElectionState:
        """Return the election with all of its known terms."""
        before = self._known.get(change.election.name)
        terms = {term.token: term for term in before.terms} if before is not None else {}
        terms |= {term.token: term for term in change.terms}
        kept = [terms[token] for token in sorted(terms)][-MAX_TERMS:]
        state = ElectionState(election=change.election, terms=kept, revision=change.revision)
        self._known[change.election.name] = state
        return state

    def _encode_event(self, kind: str, state: ElectionState) -> bytes:
        if self._form.transform:
            obj = _election_table(self._request, self._form, [state], str(state.revision), time.time())
        else:
            obj = _type_meta(KIND) | _election_document(state)
        return dump_json({"type": kind, "object": obj})

    def _encode_bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        self._bookmarked = time.monotonic()
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        if not self._form.transform:
            return dump_json({"type": "BOOKMARK", "object": _type_meta(KIND) | {"metadata": metadata}})
        table = _election_table(self._request, self._form, [], str(revision), time.time())
        if initial_end:
            table["rows"] = [{"cells": [], "object": _partial_metadata(metadata, self._form)}]
        return dump_json({"type": "BOOKMARK", "object": table})


def _parse_selector(request: Request) -> tuple[Callable[[Election], bool], str]:
    """Return a function that matches elections, and the only matching name, or "". Raises ApiStatus (400)."""
    try:
        fields = parse_fields(request.param("fieldSelector"), {"metadata.name": lambda election: election.name})
        without_labels = parse_labels(request.param("labelSelector")).matches({})
    except SelectorError as error:
        raise bad_request(str(error)) from None
    names = fields.allowed("metadata.name")
    return lambda election: without_labels and fields.matches(election), next(iter(names)) if names and len(names) == 1 else ""


def _type_meta(kind: str) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": API_VERSION}


def _object_metadata(state: ElectionState) -> dict[str, Any]:
    began = state.terms[0].began if state.terms else state.election.since
    created = format_rfc3339(to_time(to_seconds(began)))
    return {"name": state.election.name, "resourceVersion": str(state.revision), "creationTimestamp": created}


def _election_document(state: ElectionState) -> dict[str, Any]:
    election, status = state.election, dict[str, Any]()
    if election.token:
        status |= {"holder": election.holder, "token": election.token, "acquireTime": format_rfc3339(election.since)}
    if election.scheduler_names:
        status["schedulerNames"] = list(election.scheduler_names)
    waiting = [{"holder": candidate.holder, "since": format_rfc3339(candidate.since)} for candidate in election.candidates]
    status |= {"candidates": waiting} if waiting else {}
    return {"metadata": _object_metadata(state), "status": status | {"terms": [_term_document(term) for term in state.terms]}}


def _term_document(term: Term) -> dict[str, Any]:
    result: dict[str, Any] = {"holder": term.holder, "token": term.token, "acquireTime": format_rfc3339(term.began)}
    if term.HasField("ended"):
        result |= {"endTime": format_rfc3339(term.ended), "reason": term.reason}
        result |= {"presumed": True} if term.presumed else {}
    if term.HasField("last_heartbeat"):
        result["lastHeartbeatTime"] = format_rfc3339(term.last_heartbeat)
    return result


def _election_table(
    request: Request,
    form: ResponseFormat,
    states: Iterable[ElectionState],
    revision: str,
    now: float,
    beats: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """`beats`: the seconds since the last heartbeats, by election."""
    include = read_include_object(request)
    definitions = [
        {"name": name, "type": kind, "format": shape, "description": "", "priority": priority}
        for name, kind, shape, priority in _COLUMNS
    ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": definitions,
        "rows": [_election_row(state, form, include, now, beats or {}) for state in states],
    }


def _election_row(
    state: ElectionState, form: ResponseFormat, include: str, now: float, beats: Mapping[str, float]
) -> dict[str, Any]:
    election = state.election
    ended = [term.reason for term in state.terms if term.HasField("ended")]
    age = format_age(election.since, now) if election.token else NONE
    waiting = ",".join(candidate.holder for candidate in election.candidates) or NONE
    last_end = ended[-1] if ended else NONE
    cells = [
        election.name,
        election.holder or NONE,
        election.token,
        age,
        _format_heartbeat_age(election, beats),
        waiting,
        len(state.terms),
        last_end,
    ]
    if include == "None":
        return {"cells": cells}
    obj = (
        _type_meta(KIND) | _election_document(state)
        if include == "Object"
        else _partial_metadata(_object_metadata(state), form)
    )
    return {"cells": cells, "object": obj}


def _format_heartbeat_age(election: Election, beats: Mapping[str, float]) -> str:
    if not election.token:
        return NONE
    age = beats.get(election.name)
    return "<unknown>" if age is None else f"{age:.1f}s"


def _partial_metadata(metadata: dict[str, Any], form: ResponseFormat) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{form.version}", "metadata": metadata}
