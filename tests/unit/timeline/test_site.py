"""The timeline site: access control, the event stream, and refused requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector

from pinnace.timeline import site
from pinnace.timeline.items import ItemLog
from pinnace.timeline.site import (
    MAX_STREAMS,
    MAX_STREAMS_OF_USER,
    TOKEN_TTL,
    ActionError,
    TimelineSite,
    Viewer,
    ViewerSessions,
    export_page,
    serve_site,
)
from pinnace.timeline.source import DecisionError

ADMIN = Viewer("admin", ("system:masters",))
HOSTILE = "default/<script>alert(1)</script>"


class FakeSource:
    title, live = "test", True

    def __init__(self) -> None:
        self.log = ItemLog()
        self.grown = asyncio.Event()

    def add(self, *names: str) -> None:
        self.log.extend(["p", 1.0, 5, number, name, "pending", -1, 0, 0] for number, name in enumerate(names))
        self.grown.set()

    def elect(self, holder: str) -> None:
        self.log.extend([["t", 1.0, 5, "scheduler", 5, holder, None, "", None, None]])
        self.grown.set()

    async def wait(self, sequence: int) -> None:
        while self.log.last <= sequence:
            self.grown.clear()
            await self.grown.wait()

    async def wait_for_term(self, sequence: int) -> None:
        while self.log.last_term <= sequence:
            self.grown.clear()
            await self.grown.wait()

    async def explain_decision(self, pod: str, revision: int) -> Mapping[str, Any]:
        if revision == 1:
            raise DecisionError("compacted")
        return {"pod": pod, "revision": revision}

    async def keys(self, prefix: str, after: str) -> Mapping[str, Any]:
        return {"items": [prefix]}


class FakeActions:
    def __init__(self) -> None:
        self.done: list[str] = []

    async def permitted_actions(self, viewer: Viewer) -> Sequence[str]:
        return ("kill",) if "system:masters" in viewer.groups else ()

    async def run(self, viewer: Viewer, name: str, target: str) -> str:
        if target == "nobody":
            raise ActionError("nobody does not run")
        self.done.append(f"{viewer.name} {name} {target}")
        return "done"


class World:
    def __init__(self) -> None:
        self.source = FakeSource()
        self.now = 0.0
        self.sessions = ViewerSessions(lambda: self.now)
        self.actions = FakeActions()
        self.permitted = True
        self.viewers: list[int] = []
        self.viewers_changed = asyncio.Event()
        self.site = TimelineSite(self.source, self.sessions, self.actions, self.permits, self.count_viewers, lambda: 10.0)
        self.url = ""

    def count_viewers(self, count: int) -> None:
        self.viewers.append(count)
        self.viewers_changed.set()

    async def has_viewers(self, count: int) -> None:
        while self.viewers[-1:] != [count]:
            self.viewers_changed.clear()
            await self.viewers_changed.wait()

    async def permits(self, viewer: Viewer) -> bool:
        return self.permitted

    async def session(self, viewer: Viewer = ADMIN) -> ClientSession:
        """A page that has opened its link."""
        async with (
            ClientSession(base_url=self.url) as page,
            page.post("/api/login", json={"token": self.sessions.token(viewer)}) as response,
        ):
            assert response.status == 200
            session = (await response.json())["session"]
        return ClientSession(base_url=self.url, headers={"Authorization": f"Bearer {session}"})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    runner, made.url = await serve_site(made.site, "127.0.0.1", 0)
    running = asyncio.ensure_future(made.site.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()


async def received(response: ClientResponse) -> tuple[str, int, dict[str, Any]]:
    """The next server-sent event with items."""
    async with asyncio.timeout(10):
        while True:
            fields = {}
            while (line := (await response.content.readline()).decode().strip()) != "":
                name, _, value = line.partition(": ")
                fields[name] = value
            data = json.loads(fields["data"])
            if data["items"] or fields["event"] == "reset":
                return fields["event"], int(fields["id"]), data


async def test_link_works_once_and_expires(world: World) -> None:
    token, late = world.sessions.token(ADMIN), world.sessions.token(ADMIN)
    assert "?" not in world.sessions.create_link(world.url, ADMIN), "the server and its logs would see the token"
    async with ClientSession(base_url=world.url) as page:
        async with page.post("/api/login", json={"token": token}) as response:
            assert response.status == 200 and "Set-Cookie" not in response.headers
        async with page.post("/api/login", json={"token": token}) as response:
            assert response.status == 401 and "pinnace ui" in await response.text()
        world.now += TOKEN_TTL + 1
        async with page.post("/api/login", json={"token": late}) as response:
            assert response.status == 401
        for body in (b"[", b"{}", b"7"):
            async with page.post("/api/login", data=body) as response:
                assert response.status == 400


@pytest.mark.parametrize(
    "path", ["/api/session", "/api/stream", "/api/decision?pod=a/b", "/api/keys", "/api/export", "/api/trace"]
)
async def test_request_without_a_session_is_refused(world: World, path: str) -> None:
    async with ClientSession(base_url=world.url) as browser, browser.get(path) as response:
        assert response.status == 401


@pytest.mark.parametrize("path", ["/api/session", "/api/keys", "/api/export", "/api/action"])
async def test_session_is_no_cookie(world: World, path: str) -> None:
    """Browsers send cookies to all ports of a host. A service on 127.0.0.1 received the session, and could freeze processes."""
    async with await world.session() as page:
        session = page.headers["Authorization"].removeprefix("Bearer ")
    cookies = {"pinnace_session": session, "session": session, "Authorization": f"Bearer {session}"}
    kill, origin = {"name": "kill", "target": "scheduler-0"}, {"Origin": world.url.rstrip("/")}
    async with ClientSession(base_url=world.url, cookies=cookies) as browser:
        method = "POST" if path == "/api/action" else "GET"
        async with browser.request(method, path, json=kill, headers=origin) as response:
            assert response.status == 401
    assert not world.actions.done


async def test_page_of_another_port_cannot_send_the_header(world: World) -> None:
    """Its browser asks first (CORS), and is refused."""
    headers = {
        "Origin": "http://127.0.0.1:30080",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    async with ClientSession(base_url=world.url) as browser, browser.options("/api/session", headers=headers) as response:
        assert response.status == 405 and not [name for name in response.headers if name.startswith("Access-Control")]


async def opened(page: ClientSession) -> ClientResponse:
    """A stream whose first event was received."""
    response = await page.get("/api/stream")
    assert response.status == 200
    await received(response)
    return response


async def end_of(response: ClientResponse) -> str:
    """The reason for which the site ended the stream."""
    async with asyncio.timeout(10):
        text = (await response.content.read()).decode()
    fields = dict(line.split(": ", 1) for line in text.strip().rpartition("\n\n")[2].splitlines())
    assert fields["event"] == "end"
    return str(json.loads(fields["data"])["reason"])


async def test_user_with_many_streams_does_not_lock_out_others(world: World) -> None:
    """One user with 64 unread streams received all places."""
    greedy, connector = await world.session(Viewer("greedy")), TCPConnector(limit=0)
    async with greedy, ClientSession(base_url=world.url, headers=greedy.headers, connector=connector) as page:
        streams = [await opened(page) for _ in range(MAX_STREAMS_OF_USER + 1)]
        assert await end_of(streams[0]) == "the same user has opened other pages"
        assert world.viewers[-1] == MAX_STREAMS_OF_USER
        async with await world.session() as other, await opened(other):
            assert world.viewers[-1] == MAX_STREAMS_OF_USER + 1
        for stream in streams:
            stream.close()


async def test_full_site_ends_the_oldest_stream_of_the_user_with_the_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MAX_STREAMS", 3)
    assert MAX_STREAMS > MAX_STREAMS_OF_USER
    async with await world.session(Viewer("a")) as first, await world.session(Viewer("b")) as second:
        streams = [await opened(first), await opened(first), await opened(second)]
        async with await world.session() as third, await opened(third):
            assert await end_of(streams[0]) == "the same user has opened other pages"
            assert world.viewers[-1] == 3
            for stream in streams:
                stream.close()


async def test_viewer_that_does_not_read_is_disconnected(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "WRITE_TIMEOUT", 0.2)
    world.source.add(*(f"default/{number}-{'x' * 20_000}" for number in range(2000)))
    async with await world.session() as page:
        session = page.headers["Authorization"]
    url = urlsplit(world.url)
    _, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024)
    writer.write(f"GET /api/stream HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: {session}\r\n\r\n".encode())
    async with asyncio.timeout(20):
        await world.has_viewers(1)
        await world.has_viewers(0)
    writer.transport.abort()


async def test_every_response_forbids_inline_scripts(world: World) -> None:
    async with await world.session() as browser:
        for path in ("/", "/static/app.js", "/api/session"):
            async with browser.get(path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy and "unsafe" not in policy and "default-src 'none'" in policy


async def test_session_contains_lease_duration_and_actions(world: World) -> None:
    async with await world.session() as browser, browser.get("/api/session") as response:
        result = await response.json()
        assert result["leaseTtl"] == 10.0 and result["actions"] == ["kill"]


async def test_stream_sends_all_items_and_then_new_ones(world: World) -> None:
    world.source.add("default/a")
    async with await world.session() as browser, browser.get("/api/stream") as stream:
        name, sequence, data = await received(stream)
        assert (name, sequence) == ("reset", 1) and data["items"][0][4] == "default/a"
        world.source.add("default/b")
        name, sequence, data = await received(stream)
        assert (name, sequence) == ("frame", 2) and [item[4] for item in data["items"]] == ["default/b"]
    assert world.viewers[0] == 1


async def test_term_is_sent_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "FRAME_INTERVAL", 3600.0)
    async with await world.session() as browser, browser.get("/api/stream") as stream:
        await received(stream)
        world.source.add("default/a")
        assert [item[0] for item in (await received(stream))[2]["items"]] == ["p"]
        world.source.add("default/b")
        world.source.elect("scheduler-1")
        assert [item[0] for item in (await received(stream))[2]["items"]] == ["p", "t"]


async def test_reconnected_viewer_resumes(world: World) -> None:
    world.source.add("default/a", "default/b")
    async with await world.session() as browser:
        async with browser.get("/api/stream", headers={"Last-Event-ID": "1"}) as stream:
            name, _, data = await received(stream)
            assert name == "frame" and [item[4] for item in data["items"]] == ["default/b"]
        async with browser.get("/api/stream", headers={"Last-Event-ID": "99"}) as stream:
            assert (await received(stream))[0] == "reset"


async def test_user_without_permission_is_refused(world: World) -> None:
    async with await world.session() as browser:
        world.permitted = False
        for path in ("/api/stream", "/api/keys", "/api/decision?pod=a/b", "/api/export", "/api/trace"):
            async with browser.get(path) as response:
                assert response.status in (401, 403)


async def test_decision_requests_and_errors(world: World) -> None:
    async with await world.session() as browser:
        async with browser.get("/api/decision", params={"pod": "default/a", "revision": "7"}) as response:
            assert await response.json() == {"pod": "default/a", "revision": 7}
        async with browser.get("/api/decision", params={"pod": "default/a", "revision": "1"}) as response:
            assert response.status == 409 and (await response.json())["error"] == "compacted"
        invalid = [("a/b", revision) for revision in ("x", "9" * 20, "9" * 5000, "٣", "-1", "")]
        for pod, revision in (("a", "1"), ("--help/x", "1"), *invalid):
            async with browser.get("/api/decision", params={"pod": pod, "revision": revision}) as response:
                assert response.status == 400


async def test_action_needs_the_origin_and_the_permission(world: World) -> None:
    origin = {"Origin": world.url.rstrip("/")}
    kill = {"name": "kill", "target": "scheduler-0"}
    async with await world.session() as browser:
        async with browser.post("/api/action", json=kill, headers=origin) as response:
            assert response.status == 200
        async with browser.post("/api/action", json=kill, headers={"Origin": "http://evil.example"}) as response:
            assert response.status == 403
        async with browser.post("/api/action", json={"name": "format", "target": "a"}, headers=origin) as response:
            assert response.status == 403
        async with browser.post("/api/action", json=kill | {"target": "nobody"}, headers=origin) as response:
            assert response.status == 409 and "does not run" in (await response.json())["error"]
        async with browser.post("/api/action", data=b"[", headers=origin) as response:
            assert response.status == 400
    someone = await world.session(Viewer("someone"))
    async with someone, someone.post("/api/action", json=kill, headers=origin) as response:
        assert response.status == 403
    assert world.actions.done == ["admin kill scheduler-0"]


async def test_exported_page_is_self_contained_and_escapes_names(world: World) -> None:
    world.source.add(HOSTILE)
    page = export_page(world.source).decode()
    assert "<script>alert" not in page and "\\u003cscript>alert(1)\\u003c/script>" in page
    assert 'src="/static' not in page and "http://" not in page.replace("http://www.w3.org/", "")
