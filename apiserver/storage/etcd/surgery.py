"""Operations on an etcd cluster, for tests of failures. The API server does not use this module.

`python -m pinnace.apiserver.storage.etcd.surgery --etcd HOST:PORT,...` reads requests from stdin (pinnace.runtime.process):

    leader                        return the address of the leader; null: there is none, or it is unknown
    transfer {to: HOST:PORT}      transfer the leadership to that member
    compact {revision: N}         remove the history before N
    alarm {on: true | false}      raise NOSPACE, as a full disk does, or clear it
    remove {member: HOST:PORT}    remove the member with this client address, if it exists
    add {peer: URL}               add a member with this peer URL; return false if it exists
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import click
import grpc.aio
from aetcd.rpc import (
    NOSPACE,
    AlarmRequest,
    CompactionRequest,
    MemberAddRequest,
    MemberListRequest,
    MemberRemoveRequest,
    MoveLeaderRequest,
    StatusRequest,
    StatusResponse,
)

from pinnace.apiserver.storage.etcd.codec import describe_rpc_error
from pinnace.apiserver.storage.etcd.members import EtcdMember, add_tls_options
from pinnace.runtime import process
from pinnace.runtime.tls import TlsFiles

R = TypeVar("R")

CALL_TIMEOUT = 2.0
_ACTIVATE: int = AlarmRequest.AlarmAction.Value("ACTIVATE")
_DEACTIVATE: int = AlarmRequest.AlarmAction.Value("DEACTIVATE")


class EtcdAdmin:
    def __init__(self, endpoints: list[str], tls: TlsFiles | None) -> None:
        shown = tls.read() if tls else None
        self._members = [EtcdMember(endpoint, shown) for endpoint in endpoints]

    async def leader(self) -> str | None:
        statuses = await self._read_statuses()
        leaders = {status.leader for status in statuses.values()}
        return next((member.endpoint for member, said in statuses.items() if said.header.member_id in leaders), None)

    async def transfer(self, to: str) -> None:
        statuses = await self._read_statuses()
        target = next((said.header.member_id for member, said in statuses.items() if member.endpoint == to), None)
        leader = next((member for member, said in statuses.items() if said.leader == said.header.member_id), None)
        if target is None or leader is None:
            raise process.RequestRefused("cannot transfer the leadership: the leader or the target is unknown")
        await _call(leader.maintenance.MoveLeader(MoveLeaderRequest(targetID=target), timeout=CALL_TIMEOUT))

    async def compact(self, revision: int) -> None:
        member, _ = await self._healthy_member()
        await _call(member.kv.Compact(CompactionRequest(revision=revision), timeout=CALL_TIMEOUT))

    async def alarm(self, on: bool) -> None:
        """Raise the alarm for one member, which is sufficient, or clear the alarms of all members."""
        member, status = await self._healthy_member()
        if on:
            await self._change_alarm(member, _ACTIVATE, status.header.member_id)
            return
        response = await _call(member.maintenance.Alarm(AlarmRequest(alarm=NOSPACE), timeout=CALL_TIMEOUT))
        for alarm in response.alarms:
            await self._change_alarm(member, _DEACTIVATE, alarm.memberID)

    async def remove(self, member: str) -> None:
        asked, listed = await self._list_members()
        result = next(
            (
                listed_member.ID
                for listed_member in listed
                if any(url.endswith(f"//{member}") for url in listed_member.clientURLs)
            ),
            None,
        )
        if result is not None:
            await _call(asked.cluster.MemberRemove(MemberRemoveRequest(ID=result), timeout=CALL_TIMEOUT))

    async def add(self, peer: str) -> bool:
        asked, listed = await self._list_members()
        if any(peer in listed_member.peerURLs for listed_member in listed):
            return False
        await _call(asked.cluster.MemberAdd(MemberAddRequest(peerURLs=[peer]), timeout=CALL_TIMEOUT))
        return True

    async def close(self) -> None:
        for member in self._members:
            await member.close()

    async def _change_alarm(self, member: EtcdMember, action: int, member_id: int) -> None:
        request = AlarmRequest(action=action, memberID=member_id, alarm=NOSPACE)
        await _call(member.maintenance.Alarm(request, timeout=CALL_TIMEOUT))

    async def _healthy_member(self) -> tuple[EtcdMember, StatusResponse]:
        """Return a member that has a leader, preferably the leader itself."""
        statuses = await self._read_statuses()
        able = sorted(statuses.items(), key=lambda item: item[1].leader != item[1].header.member_id)
        if not able or not able[0][1].leader:
            raise process.RequestRefused("etcd has no leader")
        return able[0]

    async def _list_members(self) -> tuple[EtcdMember, Sequence[Any]]:
        """Return a member that has a leader, and the members of the cluster."""
        member, _ = await self._healthy_member()
        listed = await _call(member.cluster.MemberList(MemberListRequest(), timeout=CALL_TIMEOUT))
        return member, listed.members

    async def _read_statuses(self) -> dict[EtcdMember, StatusResponse]:
        """Return the statuses of the members that respond."""
        answers = await asyncio.gather(
            *(member.maintenance.Status(StatusRequest(), timeout=CALL_TIMEOUT) for member in self._members),
            return_exceptions=True,
        )
        return {
            member: answer
            for member, answer in zip(self._members, answers, strict=True)
            if not isinstance(answer, BaseException)
        }


async def _call(call: Awaitable[R]) -> R:
    """Await a call to etcd. Raises process.RequestRefused."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise process.RequestRefused(describe_rpc_error(error)) from None


@click.command()
@click.option("--etcd", required=True, metavar="HOST:PORT,...", help="All members.")
@add_tls_options
def main(etcd: str, etcd_tls: TlsFiles | None) -> None:
    """Operate on etcd with requests from stdin."""
    asyncio.run(_serve(etcd.split(","), etcd_tls))


async def _serve(endpoints: list[str], tls: TlsFiles | None) -> None:
    admin = EtcdAdmin(endpoints, tls)
    commands = (admin.leader, admin.transfer, admin.compact, admin.alarm, admin.remove, admin.add)
    try:
        await process.serve_requests({command.__name__: command for command in commands})
    finally:
        await admin.close()


if __name__ == "__main__":
    main()
