"""Benchmarks and stories on real clusters. Every one starts its own cluster, and has a witness that judges what it saw.

scratch.py, calibration.py                        a cluster for one purpose; with its etcd measured first
throughput.py, backlog.py, failover.py, watch.py  the rows
node_loss.py, flood.py, crowd.py, scale.py        more of them
unprivileged.py                                   flood.py by a caller without rights
load.py, workload.py                              what creates pods, and which
workloads.py, volumes.py, churn.py                the workloads of backlog.py: what there is, and what comes and goes
setting.py, outcome.py                            how it gets there; whether pods ended up where they may be
witness.py                                        when each pod was bound and ran, and whether all was as it must be
leaders.py, timeline.py                           hitting the leader, bringing it back, and what happens in between
impostor.py                                       acting for a leader that is no more
outage.py, flooder.py                             what becomes of the pods of a fleet that dies; one process of a flood
usage.py, stagecpu.py, metrics.py, machine.py     CPU and memory, by stage too; what processes count; on what
stats.py, report.py                               percentiles, JSON, tables
errors.py                                         there is no figure
"""


class BenchError(Exception):
    """The measurement could not be made: there is no figure."""
