"""Deleting many, and waiting for those very objects to go."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.resources import NAMESPACES, PODS
from pinnace.api.status import Code
from pinnace.cli.changes import BATCH, DeleteOptions, delete_all
from pinnace.cli.session import Session
from pinnace.cli.waiting import PendingDeletion
from tests.builders import make_pod
from tests.unit.cli.fakes import FakeApi, refusal

PATIENCE = 5.0


class FakeSession:
    """As much of a Session as deleting uses; errors are kept instead of told."""

    def __init__(self, api: FakeApi) -> None:
        self.client = SimpleNamespace(of=api.of)
        self.waiting_for = ""
        self.looks_once = False
        self.errors: list[Exception] = []

    def wait_for_each(self, things: int) -> None:
        pass

    def wait_up_to(self, seconds: float) -> None:
        pass

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda done: None

    def failed(self, error: Exception, where: str = "") -> None:
        self.errors.append(error)


def session_of(api: FakeApi) -> Any:
    return cast(Session, FakeSession(api))


async def pods(api: FakeApi, *names: str, slow: bool = False) -> list[PendingDeletion]:
    doomed = []
    for name in names:
        pod = make_pod(name).uid("").build()
        if slow:
            pod.metadata.finalizers.append("x")
        stored = await api.of(PODS).put(pod)
        doomed.append(PendingDeletion(PODS, "default", name, stored.metadata.uid))
    return doomed


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else run until it holds."""
    while not condition():  # noqa: ASYNC110 (no time passes, and there is no event to wait for)
        await asyncio.sleep(0)


def how(*, ignore_not_found: bool = False, wait: bool = True, grace: int | None = None) -> DeleteOptions:
    return DeleteOptions(grace, ignore_not_found, wait)


async def test_many_go_in_batches(capsys: pytest.CaptureFixture[str]) -> None:
    api = FakeApi()
    doomed = await pods(api, *(f"p{i}" for i in range(BATCH + 5)))
    await delete_all(session_of(api), doomed, how())
    assert not api.of(PODS).stored
    assert capsys.readouterr().out.splitlines() == [f'pod "{one.name}" deleted from default namespace' for one in doomed]


async def test_a_name_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    api = FakeApi()
    session = session_of(api)
    await delete_all(session, [PendingDeletion(NAMESPACES, "", "x")], how())
    assert len(session.errors) == 1 and not capsys.readouterr().out
    session = session_of(api)
    await delete_all(
        session, [PendingDeletion(PODS, "default", "x"), PendingDeletion(PODS, "default", "y")], how(ignore_not_found=True)
    )
    assert not session.errors


@pytest.mark.parametrize(
    ("dry_run", "grace", "told"),
    [
        ("none", None, "deleted from default namespace"),
        ("none", 1, "deleted from default namespace"),
        ("none", 0, "force deleted from default namespace"),
        ("client", 0, "force deleted from default namespace (dry run)"),
        ("server", None, "deleted from default namespace (server dry run)"),
    ],
)
async def test_delete_reports_the_node_and_grace_period(
    dry_run: str, grace: int | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all namespaces several may have a pod of that name."""
    api = FakeApi()
    await delete_all(
        session_of(api), await pods(api, "a"), DeleteOptions(grace, ignore_not_found=False, wait=False, dry_run=dry_run)
    )
    assert capsys.readouterr().out == f'pod "a" {told}\n'


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.ABORTED])
async def test_selected_object_that_is_gone_counts_as_deleted(code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    api = FakeApi()
    doomed = await pods(api, "a")
    api.of(PODS).fail("delete", refusal(code, "UIDMismatch" if code is Code.ABORTED else "NotFound"))
    session = session_of(api)
    await delete_all(session, doomed, how())
    assert not session.errors and capsys.readouterr().out == 'pod "a" deleted from default namespace\n'


async def test_waits_until_those_very_objects_are_gone() -> None:
    api = FakeApi()
    doomed = await pods(api, "a", "b", slow=True)
    session = session_of(api)
    deleting = asyncio.ensure_future(delete_all(session, doomed, how()))
    async with asyncio.timeout(PATIENCE):
        await until(lambda: session.waiting_for == "the deletion of pod/a, pod/b")
        await api.of(PODS).remove("a", "default")
        await pods(api, "a")  # a namesake
        await until(lambda: session.waiting_for == "the deletion of pod/b")
        assert not deleting.done()
        await api.of(PODS).remove("b", "default")
        await deleting
    assert [pod.metadata.name for pod in api.of(PODS).stored.values()] == ["a"]


async def test_delete_does_not_wait_with_no_wait() -> None:
    api = FakeApi()
    await asyncio.wait_for(delete_all(session_of(api), await pods(api, "a", slow=True), how(wait=False)), PATIENCE)
    assert len(api.of(PODS).stored) == 1


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
async def test_delete_sends_the_propagation_policy_for_each(names: tuple[str, ...]) -> None:
    api = FakeApi()
    await delete_all(session_of(api), await pods(api, *names), DeleteOptions(None, False, False, "Orphan"))
    assert api.of(PODS).propagations == ["Orphan"] * len(names)


async def test_no_grace_removes_at_once() -> None:
    api = FakeApi()
    await asyncio.wait_for(delete_all(session_of(api), await pods(api, "a", slow=True), how(grace=0)), PATIENCE)
    assert not api.of(PODS).stored
