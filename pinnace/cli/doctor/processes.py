"""The processes of a local cluster: does each run, and is it ready."""

import asyncio
from collections.abc import Sequence

from pinnace.cli.client_errors import OUT_OF_SPACE
from pinnace.cli.doctor.finding import Finding, ok, problem
from pinnace.cluster import etcd
from pinnace.cluster.certificates import etcd_client
from pinnace.cluster.folder import Folder
from pinnace.cluster.ports import is_free
from pinnace.cluster.spec import ELECTIONS, ETCD, default_data_dir, pki_folder
from pinnace.cluster.state import ClusterState, ProcessRecord
from pinnace.cluster.view import DEAD, unready


async def processes(state: ClusterState) -> Sequence[Finding]:
    why = await asyncio.gather(*map(unready, state.processes))
    unwell = [(record, reason) for record, reason in zip(state.processes, why, strict=True) if reason]
    members = [record.plan.address for record, reason in unwell if record.component == ETCD and reason != DEAD]
    alarms = await asyncio.to_thread(etcd.alarms, members[0], etcd_client(pki_folder(state.spec.data_dir))) if members else []
    found = [_unwell(state, record, reason, alarms) for record, reason in unwell]
    return found or [ok("processes", f"all {len(state.processes)} of the cluster in {state.spec.data_dir} are ready")]


def elections(state: ClusterState) -> list[str]:
    """That should have a leader."""
    return [election for component, election in ELECTIONS.items() if state.of(component)]


def _unwell(state: ClusterState, record: ProcessRecord, reason: str, alarms: Sequence[str]) -> Finding:
    """`alarms`: etcd's."""
    folder = state.spec.data_dir
    where = "" if folder == default_data_dir() else f" --data-dir {folder}"
    log = f"its log is {Folder(folder).log(record.name)}"
    if reason != DEAD:
        if record.component == ETCD and "NOSPACE" in alarms:
            return problem("processes", f"{record.name} is not ready: out of space, only reads and deletes work", OUT_OF_SPACE)
        if record.component == ETCD and alarms:
            reason = f"alarm {', '.join(alarms)}"
        return problem("processes", f"{record.name} is not ready: {reason}", log)
    taken = [each for each in {record.plan.address, record.plan.http} if not is_free(each)]
    if taken:
        hint = "see which with `ss -ltnp`, and end it, or start the cluster anew: pinnace down, pinnace up"
        return problem("processes", f"{record.name} does not run, and another program has {taken[0]}", hint)
    if lost := etcd.lost_member(record.name, Folder(folder).log_tail(record.name)):
        return problem("processes", f"{record.name} does not run", lost)
    return problem("processes", f"{record.name} does not run", f"pinnace restart{where} {record.name}; {log}")
