"""The timeline site: access control, the event stream, and refused requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar

from pinnace.timeline import site
from pinnace.timeline.items import ItemLog
from pinnace.timeline.site import COOKIE, TOKEN_TTL, ActionError, Sessions, Site, Viewer, export, serve
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
        self.log.extend([["t", 1.0, 5, "scheduler", 5, holder, None, ""]])
        self.grown.set()

    async def wait(self, sequence: int) -> None:
        while self.log.last <= sequence:
            self.grown.clear()
            await self.grown.wait()

    async def wait_for_term(self, sequence: int) -> None:
        while self.log.last_term <= sequence:
            self.grown.clear()
            await self.grown.wait()

    async def decision(self, pod: str, revision: int) -> Mapping[str, Any]:
        if revision == 1:
            raise DecisionError("compacted")
        return {"pod": pod, "revision": revision}

    async def keys(self, prefix: str, after: str) -> Mapping[str, Any]:
        return {"items": [prefix]}


class FakeActions:
    def __init__(self) -> None:
        self.done: list[str] = []

    async def permitted(self, viewer: Viewer) -> Sequence[str]:
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
        self.sessions = Sessions(lambda: self.now)
        self.actions = FakeActions()
        self.permitted = True
        self.viewers: list[int] = []
        self.site = Site(self.source, self.sessions, self.actions, self.permits, self.viewers.append, lambda: 10.0)
        self.url = ""

    async def permits(self, viewer: Viewer) -> bool:
        return self.permitted

    async def session(self, viewer: Viewer = ADMIN) -> ClientSession:
        """A browser session that has opened its link."""
        made = ClientSession(base_url=self.url, cookie_jar=CookieJar(unsafe=True))
        async with made.get("/", params={"token": self.sessions.token(viewer)}) as response:
            assert response.status == 200
        return made


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    runner, made.url = await serve(made.site, "127.0.0.1", 0)
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
    async with ClientSession(base_url=world.url, cookie_jar=CookieJar(unsafe=True)) as first:
        async with first.get("/", params={"token": token}) as response:
            assert response.status == 200 and "token" not in str(response.url), "the final URL contains the token"
        cookie = next(iter(first.cookie_jar))
        assert cookie.key == COOKIE and cookie["httponly"] and cookie["samesite"] == "Strict"
    async with ClientSession(base_url=world.url) as second:
        async with second.get("/", params={"token": token}) as response:
            assert response.status == 401 and "pinnace ui" in await response.text()
        world.now += TOKEN_TTL + 1
        async with second.get("/", params={"token": late}) as response:
            assert response.status == 401


@pytest.mark.parametrize(
    "path", ["/", "/api/session", "/api/stream", "/api/decision?pod=a/b", "/api/keys", "/api/export", "/api/trace"]
)
async def test_nothing_is_served_without_a_session(world: World, path: str) -> None:
    async with ClientSession(base_url=world.url) as browser, browser.get(path) as response:
        assert response.status == 401


async def test_every_response_forbids_inline_scripts(world: World) -> None:
    async with await world.session() as browser:
        for path in ("/", "/static/app.js", "/api/session"):
            async with browser.get(path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy and "unsafe" not in policy and "default-src 'none'" in policy


async def test_session_contains_lease_duration_and_actions(world: World) -> None:
    async with await world.session() as browser, browser.get("/api/session") as response:
        found = await response.json()
        assert found["leaseTtl"] == 10.0 and found["actions"] == ["kill"]


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
    page = export(world.source).decode()
    assert "<script>alert" not in page and "\\u003cscript>alert(1)\\u003c/script>" in page
    assert 'src="/static' not in page and "http://" not in page.replace("http://www.w3.org/", "")
