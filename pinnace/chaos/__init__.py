"""Breaking a cluster of real processes on purpose, and judging what became of it.

faults/        what can be done to a cluster; schedule.py: when which of it happens (pure)
world.py       what faults lay their hands on: processes, links, etcd, clocks
proxy.py       one connection between two processes, that misbehaves when told to; links.py: one for each pair of a cluster
helper.py      a process that is told what to do in lines of JSON; clocks.py: wall clocks, one for each process
engine.py      lets a schedule happen, and writes down what happened
load.py        many clients at work (workers.py, adversary.py, watching.py), all of it in the history (clients.py, calls.py)
journal.py     the history file of this process; recorder.py: etcd's, by a process beside the cluster
run.py         a whole run: cluster, load, faults, peace, verdict; report.py: what it found
scenarios/     single stories, told moment by moment
"""
