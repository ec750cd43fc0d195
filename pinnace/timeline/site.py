"""The timeline as a web site: the page, and the data that it shows.

    /                 the page, without data
    /static/NAME      its modules and styles
    /api/login        POST: exchanges the token of a link for a session
    /api/session      title, user and permitted actions
    /api/stream       server-sent events: `reset` with the whole log, `frame` with new items, and `end` with a reason
    /api/decision     the explanation of a pod as of a revision
    /api/keys         keys of etcd, with the age of their leases
    /api/action       POST: kill or freeze a process, and the like
    /api/export       the page with its data in one HTML file
    /api/trace        the same as a trace for Perfetto

A frame is encoded once for all viewers. Frames are sent every FRAME_INTERVAL seconds, those with a term at once. The id of an
event is the sequence number of its last item, so that a page that reconnects resumes there (`Last-Event-ID`).

Access: a link has a one-time token in its fragment, which browsers do not send. The page exchanges it for a session, which it
keeps in its sessionStorage and sends as `Authorization: Bearer`. There is no cookie: browsers send cookies to all ports of a
host, so that any service on 127.0.0.1 would receive it. Pages of other origins, and another port is another origin, can neither
read the session nor send the header. Actions must also come from the page itself (`Origin`). Text of objects is sent as JSON
only, and the Content-Security-Policy allows no inline scripts.

Streams: a user has at most MAX_STREAMS_OF_USER; a further one ends the oldest. If the site has MAX_STREAMS, a new one ends the
oldest of the user with the most. So nobody can lock out others. A viewer that does not read is disconnected after MAX_FRAMES
frames or WRITE_TIMEOUT seconds.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
import logging
import secrets
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

from aiohttp import web

from pinnace.api.integers import parse_natural
from pinnace.timeline.source import DecisionError, TimelineSource
from pinnace.timeline.trace import build_trace

log = logging.getLogger(__name__)

FRAME_INTERVAL = 0.1
TERM_DELAY = 0.01
"""Seconds between a frame and the next one, if that has a term."""
KEEPALIVE_INTERVAL = 1.0
"""Seconds between two events while there is nothing new. Each has the server's time, so a page sees a broken connection."""
MAX_FRAMES = 100
MAX_STREAMS, MAX_STREAMS_OF_USER = 64, 16
MAX_DIGITS = 19
WRITE_TIMEOUT = 60.0
"""Seconds within which a viewer must take a frame."""
TOKEN_TTL = 600.0
"""Seconds in which a link must be opened."""
SESSION_TTL = 12 * 3600.0
BEARER = "Bearer "
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
MODULES = ("app.js", "model.js", "lanes.js", "nodes.js", "panels.js", "curves.js", "session.js", "vendor.js", "uplot.js")
PERMISSION_INTERVAL = 30.0


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person at the page. `groups` as in Kubernetes."""

    name: str
    groups: tuple[str, ...] = ()


class ViewerActions(Protocol):
    """The changes that a viewer may make."""

    async def permitted_actions(self, viewer: Viewer) -> Sequence[str]:
        """Names of actions."""
        ...

    async def run(self, viewer: Viewer, name: str, target: str) -> str:
        """Return a sentence about the result. Raises ActionError."""
        ...


class ActionError(Exception):
    """An action was not possible. The message is for the viewer."""


class NoViewerActions:
    async def permitted_actions(self, viewer: Viewer) -> Sequence[str]:
        return ()

    async def run(self, viewer: Viewer, name: str, target: str) -> str:
        raise ActionError("a recording cannot be changed")


class ViewerSessions:
    """One-time tokens, and the sessions that they open. In memory: they end with the process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tokens: dict[str, tuple[float, Viewer]] = {}
        self._sessions: dict[str, tuple[float, Viewer]] = {}

    def token(self, viewer: Viewer) -> str:
        self._tokens = {token: each for token, each in self._tokens.items() if each[0] > self._now()}
        token = secrets.token_urlsafe(24)
        self._tokens[token] = self._now() + TOKEN_TTL, viewer
        return token

    def create_link(self, url: str, viewer: Viewer) -> str:
        """A link that works once. Browsers do not send the fragment."""
        return f"{url}#token={self.token(viewer)}"

    def open(self, token: str) -> str | None:
        """The id of a new session; None for a token that is unknown, used or too old."""
        expires, viewer = self._tokens.pop(token, (0.0, None))
        if viewer is None or expires <= self._now():
            return None
        self._sessions = {each: result for each, result in self._sessions.items() if result[0] > self._now()}
        session = secrets.token_urlsafe(24)
        self._sessions[session] = self._now() + SESSION_TTL, viewer
        return session

    def find_viewer(self, session: str) -> Viewer | None:
        expires, viewer = self._sessions.get(session, (0.0, None))
        return viewer if expires > self._now() else None

    def end_sessions(self, viewer: Viewer) -> None:
        """End the sessions of a viewer that has lost its permission."""
        self._sessions = {each: result for each, result in self._sessions.items() if result[1] != viewer}


PermissionCheck = Callable[[Viewer], Awaitable[bool]]
"""Whether a viewer may see the timeline, asked whenever a stream is opened and every PERMISSION_INTERVAL seconds."""


async def permit_all(viewer: Viewer) -> bool:
    return True


class _EventStream:
    """An open event stream of a viewer. An empty frame is its end."""

    def __init__(self, viewer: Viewer, transport: asyncio.BaseTransport | None) -> None:
        self.viewer = viewer
        self.frames: asyncio.Queue[bytes] = asyncio.Queue(MAX_FRAMES)
        self._transport = transport
        self._is_writing = False

    async def write(self, response: web.StreamResponse, frame: bytes) -> None:
        """Raises ConnectionError if the viewer has left or does not read."""
        self._is_writing = True
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await response.write(frame)
        except TimeoutError:
            self._abort()
            raise ConnectionAbortedError from None
        self._is_writing = False

    def end(self, reason: str) -> None:
        """End the stream with a reason for the viewer. A viewer that does not read is disconnected."""
        if self._is_writing:
            self._abort()
        while not self.frames.empty():
            self.frames.get_nowait()
        self.frames.put_nowait(encode_sse_event("end", 0, {"reason": reason}))
        self.frames.put_nowait(b"")

    def _abort(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()


class TimelineSite:
    """Handles the requests of all viewers. `watched` is called with the number of viewers whenever it changes."""

    def __init__(
        self,
        source: TimelineSource,
        sessions: ViewerSessions,
        actions: ViewerActions | None = None,
        permits: PermissionCheck = permit_all,
        watched: Callable[[int], None] = lambda count: None,
        lease_ttl: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`lease_ttl`: seconds of the leases of elections, if they are known."""
        self._source = source
        self._sessions = sessions
        self._actions: ViewerActions = actions or NoViewerActions()
        self._permits = permits
        self._watched = watched
        self._lease_ttl = lease_ttl
        self._streams: list[_EventStream] = []
        """Open streams, oldest first."""
        self._files = {name: _read_asset(name) for name in ("index.html", "style.css", *MODULES)}

    def application(self) -> web.Application:
        app = web.Application(client_max_size=64 << 10)
        app.router.add_get("/", self._serve_page)
        app.router.add_get("/static/{name}", self._serve_static)
        app.router.add_post("/api/login", self._serve_login)
        app.router.add_get("/api/session", self._serve_session)
        app.router.add_get("/api/stream", self._stream)
        app.router.add_get("/api/decision", self._serve_decision)
        app.router.add_get("/api/keys", self._serve_keys)
        app.router.add_get("/api/export", self._serve_export)
        app.router.add_get("/api/trace", self._serve_trace)
        app.router.add_post("/api/action", self._serve_action)
        app.on_response_prepare.append(_set_security_headers)
        return app

    async def run(self) -> None:
        """Send frames to viewers until cancelled."""
        sent = self._source.log.last
        while True:
            try:
                async with asyncio.timeout(KEEPALIVE_INTERVAL):
                    await self._source.wait(sent)
            except TimeoutError:
                pass
            if not self._streams:
                sent = self._source.log.last
                await asyncio.sleep(FRAME_INTERVAL)
                continue
            items = self._source.log.items_after(sent)
            sent = self._source.log.last
            frame = self._reset() if items is None else encode_sse_event("frame", sent, {"items": items, "now": time.time()})
            for stream in list(self._streams):
                if stream.frames.full():
                    self._forget(stream)
                    stream.end("the page did not read")
                else:
                    stream.frames.put_nowait(frame)
            await asyncio.sleep(TERM_DELAY)
            with suppress(TimeoutError):
                async with asyncio.timeout(FRAME_INTERVAL - TERM_DELAY):
                    await self._source.wait_for_term(sent)

    def _require_viewer(self, request: web.Request) -> Viewer:
        authorization = request.headers.get("Authorization", "")
        viewer = self._sessions.find_viewer(authorization.removeprefix(BEARER)) if authorization.startswith(BEARER) else None
        if viewer is None:
            raise web.HTTPUnauthorized(text="This page has no session, or it has expired. Run `pinnace ui` for a new link.\n")
        return viewer

    async def _serve_page(self, request: web.Request) -> web.StreamResponse:
        return self._file_response("index.html")

    async def _serve_login(self, request: web.Request) -> web.StreamResponse:
        try:
            token = str((await request.json())["token"])
        except (ValueError, KeyError, TypeError):
            raise web.HTTPBadRequest(text='expected {"token": ...}\n') from None
        session = self._sessions.open(token)
        if session is None:
            raise web.HTTPUnauthorized(text="This link was used before, or has expired. Run `pinnace ui` for a new one.\n")
        return web.json_response({"session": session}, headers={"Cache-Control": "no-store"})

    async def _serve_static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._files:
            raise web.HTTPNotFound
        return self._file_response(name)

    def _file_response(self, name: str) -> web.Response:
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=self._files[name], content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"})

    async def _serve_session(self, request: web.Request) -> web.StreamResponse:
        viewer = self._require_viewer(request)
        result = {
            "title": self._source.title,
            "live": self._source.live,
            "user": viewer.name,
            "actions": list(await self._actions.permitted_actions(viewer)),
            "leaseTtl": self._lease_ttl(),
        }
        return web.json_response(result)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        viewer = self._require_viewer(request)
        await self._require(viewer)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        last = request.headers.get("Last-Event-ID", "")
        after = parse_natural(last)
        items = self._source.log.items_after(after) if after is not None else None
        sequence = self._source.log.last
        first = self._reset() if items is None else encode_sse_event("frame", sequence, {"items": items, "now": time.time()})
        stream = self._open(viewer, request.transport)
        checked = time.monotonic()
        try:
            await stream.write(response, first)
            while frame := await stream.frames.get():
                await stream.write(response, frame)
                if time.monotonic() - checked > PERMISSION_INTERVAL:
                    await self._require(viewer)
                    checked = time.monotonic()
        except (ConnectionError, web.HTTPForbidden):
            pass
        finally:
            self._forget(stream)
        return response

    def _open(self, viewer: Viewer, transport: asyncio.BaseTransport | None) -> "_EventStream":
        """Add a stream. Within the limits, it ends another one."""
        counts = Counter(stream.viewer.name for stream in self._streams)
        user = ""
        if counts[viewer.name] >= MAX_STREAMS_OF_USER:
            user = viewer.name
        elif len(self._streams) >= MAX_STREAMS:
            user = counts.most_common(1)[0][0]
        if user:
            oldest = next(stream for stream in self._streams if stream.viewer.name == user)
            self._forget(oldest)
            oldest.end("the same user has opened other pages")
        stream = _EventStream(viewer, transport)
        self._streams.append(stream)
        self._watched(len(self._streams))
        return stream

    def _forget(self, stream: "_EventStream") -> None:
        if stream in self._streams:
            self._streams.remove(stream)
            self._watched(len(self._streams))

    async def _require(self, viewer: Viewer) -> None:
        if not await self._permits(viewer):
            self._sessions.end_sessions(viewer)
            raise web.HTTPForbidden(text=f'user "{viewer.name}" cannot watch keys in API group "pinnace.io"\n')

    def _reset(self) -> bytes:
        source = self._source.log
        result = {"base": source.base(), "items": source.all_items(), "now": time.time()}
        return encode_sse_event("reset", source.last, result)

    async def _serve_decision(self, request: web.Request) -> web.StreamResponse:
        await self._require(self._require_viewer(request))
        pod, revision = request.query.get("pod", ""), parse_natural(request.query.get("revision", "0"))
        if "/" not in pod or pod.startswith("-") or revision is None:
            raise web.HTTPBadRequest(text="expected pod=NAMESPACE/NAME and revision=NUMBER\n")
        try:
            return web.json_response(await self._source.explain_decision(pod, revision))
        except DecisionError as error:
            return web.json_response({"error": str(error)}, status=409)

    async def _serve_keys(self, request: web.Request) -> web.StreamResponse:
        await self._require(self._require_viewer(request))
        try:
            return web.json_response(await self._source.keys(request.query.get("prefix", ""), request.query.get("after", "")))
        except DecisionError as error:
            return web.json_response({"error": str(error)}, status=409)

    async def _serve_export(self, request: web.Request) -> web.StreamResponse:
        return await self._download(request, export_page, "text/html", "pinnace-timeline.html")

    async def _serve_trace(self, request: web.Request) -> web.StreamResponse:
        return await self._download(request, export_trace, "application/json", "pinnace-trace.json")

    async def _download(
        self, request: web.Request, make: Callable[[TimelineSource], bytes], kind: str, name: str
    ) -> web.StreamResponse:
        await self._require(self._require_viewer(request))
        body = await asyncio.to_thread(make, self._source)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    async def _serve_action(self, request: web.Request) -> web.StreamResponse:
        viewer = self._require_viewer(request)
        if request.headers.get("Origin", "") != f"{request.scheme}://{request.host}":
            raise web.HTTPForbidden(text="actions are accepted from the page only\n")
        try:
            body = await request.json()
            name, target = str(body["name"]), str(body["target"])
        except (ValueError, KeyError, TypeError):
            raise web.HTTPBadRequest(text='expected {"name": ..., "target": ...}\n') from None
        if name not in await self._actions.permitted_actions(viewer):
            raise web.HTTPForbidden(text=f'user "{viewer.name}" cannot {name}\n')
        try:
            return web.json_response({"result": await self._actions.run(viewer, name, target)})
        except ActionError as error:
            return web.json_response({"error": str(error)}, status=409)


def encode_sse_event(name: str, sequence: int, data: Mapping[str, Any]) -> bytes:
    """One server-sent event. JSON has no line breaks."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return f"event: {name}\nid: {sequence}\ndata: {text}\n\n".encode()


def export_page(source: TimelineSource) -> bytes:
    """The page with its data in one HTML file, which needs no server."""
    data = {"title": source.title, "base": source.log.base(), "items": source.log.all_items(), "now": time.time()}
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    page = _read_asset("index.html").decode()
    style = f"<style>{_read_asset('style.css').decode()}</style>"
    sources = {name: _read_asset(name).replace(b'from "/static/', b'from "static/') for name in MODULES}
    imports = {f"static/{name}": f"data:text/javascript;base64,{_encode_base64(source)}" for name, source in sources.items()}
    scripts = (
        f'<script type="application/json" id="recording">{text}</script>'
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>'
        '<script type="module">import "static/app.js"</script>'
    )
    page = page.replace('<link rel="stylesheet" href="/static/style.css">', style)
    page = page.replace('<script type="module" src="/static/app.js"></script>', scripts)
    return page.encode()


def export_trace(source: TimelineSource) -> bytes:
    """The data as a trace in the Trace Event Format (JSON)."""
    return json.dumps(build_trace(source.title, source.log.base(), source.log.all_items()), separators=(",", ":")).encode()


def _encode_base64(data: bytes) -> str:
    return b64encode(data).decode()


def _read_asset(name: str) -> bytes:
    return (resources.files("pinnace.timeline") / "static" / name).read_bytes()


async def _set_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


async def serve_site(site: TimelineSite, host: str, port: int) -> tuple[web.AppRunner, str]:
    """Start serving; return the runner, and the URL. Raises OSError."""
    runner = web.AppRunner(site.application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    listener = web.TCPSite(runner, host, port)
    try:
        await listener.start()
    except OSError:
        with suppress(Exception):
            await runner.cleanup()
        raise
    bound_host, bound_port = runner.addresses[0][:2]
    shown = "127.0.0.1" if bound_host in ("0.0.0.0", "::") else bound_host
    return runner, f"http://{shown}:{bound_port}/"
