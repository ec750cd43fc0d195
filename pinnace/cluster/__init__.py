"""Local clusters of real processes.

spec.py        how many of what; the command line of each process (pure)
fittings.py    what somebody who examines a cluster puts around its processes
etcd.py        which etcd, with which arguments, and whether it answers
ports.py       addresses that are free and stay so
state.py       what is remembered of a cluster (pure); folder.py keeps it, locks it, and removes what is left
procfs.py      the very process that was started, and no other with its pid; what it uses
processes.py   starting them, and ending them in order
ready.py       what a process says of itself; startup.py: what a cluster still lacks; view.py: what it looks like
cluster.py     Cluster: up, status, kill, start, down
follow.py      what changes, a line each
"""
