"""Local clusters of real processes.

spec.py          how many of what; the command line of each process (pure)
inputs.py        what the components are configured with: files that are copied, environment variables that are kept
fittings.py      what somebody who examines a cluster puts around its processes
proxy.py         one connection between two processes, which misbehaves when told to; links.py: one for each pair of a cluster
helper.py        a process that is told what to do in lines of JSON
etcd.py          which etcd, with which arguments, and whether it answers
certificates.py  who its parts are to each other
ports.py         addresses that are free and stay so
state.py         what is remembered of a cluster (pure); folder.py keeps it, locks it, and removes what is left
processes.py     starting them, and ending them in order; strays.py: those whose state is gone
ready.py         what a process says of itself; startup.py: what a cluster still lacks, and waiting for it
view.py          what it looks like
cluster.py       Cluster: up, resume, status, kill, stop, restart, down
follow.py        what changes, a line each; progress.py: where long work is
errors.py        what can go wrong, in a line for a person
"""
