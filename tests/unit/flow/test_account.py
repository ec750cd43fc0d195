"""What a flow may have told and not taken, and who waits or ends when that is too much."""

import asyncio
from dataclasses import dataclass

import pytest

from apiserver.flow import account as module
from apiserver.flow.account import Account, Room

MIB = 1 << 20


class Everything:
    questions = 1


EVERYTHING = Everything()


@dataclass(eq=False)
class Watch:
    account: Account
    waiting: int
    selection: Everything = EVERYTHING
    ended: bool = False

    def overflow(self) -> None:
        self.account.charge(-self.waiting)
        self.waiting, self.ended = 0, True


def watching(account: Account, *mib: int) -> list[Watch]:
    """Watches for which so much waits."""
    watches = [Watch(account, size * MIB) for size in mib]
    for watch in watches:
        account.open(watch)
        account.charge(watch.waiting)
    return watches


def filled(room: Room, mib: int) -> Account:
    account = Account(room)
    account.charge(mib * MIB)
    return account


def test_one_has_as_much_as_it_leaves_free() -> None:
    assert not filled(Room(), 63).full
    assert filled(Room(), 64).full


def test_what_others_have_is_not_free() -> None:
    room = Room()
    filled(room, 64)
    assert not filled(room, 31).full
    assert filled(room, 32).full


def test_who_has_nothing_may_have_one() -> None:
    room = Room()
    filled(room, 1000)
    assert not Account(room).full


def test_what_waits_for_watches_has_twice_the_room() -> None:
    account = Account(Room())
    watches = watching(account, 50, 60, 17)
    account.relieve()
    assert not any(watch.ended for watch in watches)
    watches += watching(account, 1)
    account.relieve()
    assert [watch.ended for watch in watches] == [False, True, False, False]


def test_as_many_end_as_must() -> None:
    account = Account(Room())
    watches = watching(account, 20, 30, 40, 0, 10)
    account.charge(120 * MIB)
    account.relieve()
    assert [watch.ended for watch in watches] == [True, True, True, False, True]
    assert account.untaken == 120 * MIB


def test_others_are_left_alone() -> None:
    room = Room()
    large, small = Account(room), Account(room)
    watches = watching(large, 100) + watching(small, 10)
    large.relieve()
    small.relieve()
    assert [watch.ended for watch in watches] == [False, False]
    large.charge(60 * MIB)
    small.relieve()
    large.relieve()
    assert [watch.ended for watch in watches] == [True, False]


async def test_those_who_wait_go_on_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECHECK", 60.0)
    account = filled(Room(), 64)
    went: list[int] = []

    async def send(number: int) -> None:
        while account.full:
            await account.wait()
        account.charge(60 * MIB)
        went.append(number)

    tasks = [asyncio.ensure_future(send(number)) for number in range(4)]
    await asyncio.sleep(0.01)
    assert went == []
    tasks[1].cancel()
    for expected in ([0], [0, 2], [0, 2, 3]):
        account.charge(-60 * MIB)
        await asyncio.sleep(0.01)
        assert went == expected
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_room_for_several_is_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECHECK", 60.0)
    account = filled(Room(), 64)

    async def send() -> None:
        while account.full:
            await account.wait()
        account.charge(MIB)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(send())
        await asyncio.sleep(0.01)
        account.charge(-60 * MIB)
    assert account.untaken == 14 * MIB


async def test_who_waits_sees_what_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECHECK", 0.01)
    room = Room()
    other, account = filled(room, 100), filled(room, 20)
    async with asyncio.timeout(10):
        other.charge(-100 * MIB)
        while account.full:
            await account.wait()
