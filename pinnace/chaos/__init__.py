"""Breaking a cluster of real processes on purpose, and judging what became of it.

faults/        what can be done to a cluster; schedule.py: when which of it happens (pure)
stage.py       a cluster to be broken: with links (pinnace.cluster.links), its history recorded; guardian.py ends it if we die
world.py       what faults lay their hands on: processes, links, etcd, clocks
clocks.py      wall clocks, one for each process; disks.py: disks that can be full, one for a member of etcd
saboteur.py    a scheduler plugin that does harm
engine.py      lets a schedule happen, and writes down what happened
load.py        many clients at work (workers.py, adversary.py, watching.py), all of it in the history (clients.py, calls.py)
hostile_pods.py   valid pods that cost as much as a pod can
bystander.py   another user, whose calls must be answered while somebody does harm
journal.py     the history file of this process; heading.py: what it begins with; recorder.py: etcd's, by another process
run.py         a whole run: cluster, load, faults, peace, verdict; report.py: what it found
complaints.py  what processes say in their logs that must not be
scenarios/     single stories, told moment by moment (moments.py); perform.py: one of them, from the start to the verdict
errors.py      a run could not be made
"""


class ChaosError(Exception):
    """A run could not be made, or its tools failed. It says nothing about the cluster. The message is one line."""
