"""The processes of a local cluster: does each run, and is it ready."""

from collections.abc import Sequence

from pinnace.cli.client_errors import OUT_OF_SPACE
from pinnace.cli.doctor.finding import Finding, ok, problem
from pinnace.cluster import etcd
from pinnace.cluster.folder import Folder
from pinnace.cluster.ports import is_free
from pinnace.cluster.spec import ELECTIONS, ETCD, data_dir_flag
from pinnace.cluster.state import ClusterState, ProcessRecord
from pinnace.cluster.view import DEAD, problems


async def processes(state: ClusterState) -> Sequence[Finding]:
    reasons = zip(state.processes, await problems(state), strict=True)
    found = [_unwell(state, record, reason) for record, reason in reasons if reason]
    return found or [ok("processes", f"all {len(state.processes)} of the cluster in {state.spec.data_dir} are ready")]


def elections(state: ClusterState) -> list[str]:
    """That should have a leader."""
    return [election for component, election in ELECTIONS.items() if state.of(component)]


def _unwell(state: ClusterState, record: ProcessRecord, reason: str) -> Finding:
    folder = state.spec.data_dir
    log = f"its log is {Folder(folder).log(record.name)}"
    if reason != DEAD:
        if record.component == ETCD and "NOSPACE" in reason:
            return problem("processes", f"{record.name} is not ready: out of space, only reads and deletes work", OUT_OF_SPACE)
        return problem("processes", f"{record.name} is not ready: {reason}", log)
    taken = [each for each in {record.plan.address, record.plan.http} if not is_free(each)]
    if taken:
        hint = "`pinnace stop` and `pinnace start` choose another one; `ss -ltnp` shows the program"
        return problem("processes", f"{record.name} does not run, and another program has {taken[0]}", hint)
    if lost := etcd.lost_member(record.name, Folder(folder).log_tail(record.name)):
        return problem("processes", f"{record.name} does not run", lost)
    return problem("processes", f"{record.name} does not run", f"pinnace start{data_dir_flag(folder)} {record.name}; {log}")
