"""Getting out of NOSPACE.

etcd raises that alarm when its file has grown to --quota-backend-bytes, and then takes no puts and no new leases (reads,
deletes and compaction go on) until somebody has compacted, defragmented the members and cleared the alarm. Compaction alone
makes room inside the file, but the file stays as large as it was.
"""

import logging

import grpc
from aetcd.rpc import NOSPACE, AlarmRequest, DefragmentRequest

from apiserver.storage.etcd.errors import describe
from apiserver.storage.etcd.members import REQUIRE_LEADER, Member, Members

log = logging.getLogger(__name__)

DEFRAGMENT_TIMEOUT = 60.0
"""Seconds. A member answers nothing else meanwhile; it copies what is left after compaction (roughly 1 GB in 10 s)."""
_GET: int = AlarmRequest.AlarmAction.Value("GET")
_DEACTIVATE: int = AlarmRequest.AlarmAction.Value("DEACTIVATE")


async def find_alarms(member: Member, timeout: float) -> list[int]:
    """The members, by id, that are out of space. Raises AioRpcError."""
    request = AlarmRequest(action=_GET, alarm=NOSPACE)
    response = await member.maintenance.Alarm(request, timeout=timeout, metadata=REQUIRE_LEADER)
    return [alarm.memberID for alarm in response.alarms if alarm.alarm == NOSPACE]


async def reclaim(members: Members, alarms: list[int], timeout: float) -> None:
    """Defragments the members one after another, and clears the alarms. When that was not enough, the next put raises one
    again. Raises AioRpcError when an alarm cannot be cleared."""
    for member in members.all:
        try:
            await member.maintenance.Defragment(DefragmentRequest(), timeout=DEFRAGMENT_TIMEOUT)
            log.info("defragmented etcd %s", member.endpoint)
        except grpc.aio.AioRpcError as error:
            log.warning("defragmenting etcd %s: %s", member.endpoint, describe(error))
    for alarm in alarms:
        request = AlarmRequest(action=_DEACTIVATE, memberID=alarm, alarm=NOSPACE)
        await members.current.maintenance.Alarm(request, timeout=timeout, metadata=REQUIRE_LEADER)
