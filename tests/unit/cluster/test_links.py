"""Links between processes: wiring and disturbances."""

import pytest

from pinnace.cluster.links import HelperError, Links, Mode
from tests.unit.cluster.echo import MOMENT, an_echo, connected

pytestmark = pytest.mark.processes


async def test_each_pair_of_processes_has_a_stable_link() -> None:
    async with an_echo() as echo, Links(2) as links:
        first = links.assign_address("scheduler-0", "apiserver-0", echo.endpoint)
        second = links.assign_address("scheduler-1", "apiserver-0", echo.endpoint)
        assert len({first, second, echo.endpoint}) == 3
        assert links.assign_address("scheduler-0", "apiserver-0", echo.endpoint) == first
        for address in (first, second):
            async with connected(address) as client:
                assert await client.ask(b"one\n") == b"one\n"


async def test_only_named_links_are_disturbed() -> None:
    async with an_echo() as echo, Links(2) as links:
        addresses = [links.assign_address(source, "apiserver-0", echo.endpoint) for source in ("scheduler-0", "scheduler-1")]
        async with connected(addresses[0]) as disturbed, connected(addresses[1]) as free:
            await disturbed.ask(b"one\n")
            await links.set([("scheduler-0", "apiserver-0")], answers=Mode.HOLD)
            disturbed.writer.write(b"two\n")
            with pytest.raises(TimeoutError):
                await disturbed.answer(within=MOMENT)
            assert await free.ask(b"three\n") == b"three\n"
            await links.reset_links()
            assert await disturbed.answer() == b"two\n"


async def test_links_can_be_reset_and_refuse() -> None:
    async with an_echo() as echo, Links(1) as links:
        address = links.assign_address("kubelet-0", "apiserver-0", echo.endpoint)
        async with connected(address) as client:
            await client.ask(b"one\n")
            await links.refuse(links.all_links)
            await links.reset(links.all_links)
            with pytest.raises(ConnectionResetError):
                await client.answer()
            with pytest.raises(ConnectionRefusedError):
                async with connected(address):
                    pass
        await links.accept(links.all_links)
        async with connected(address) as client:
            assert await client.ask(b"two\n") == b"two\n"


async def test_closed_links_raise_an_error() -> None:
    links = Links(1)
    async with links:
        pass
    with pytest.raises(HelperError, match="gone"):
        await links.reset([])
