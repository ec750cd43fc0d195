"""Named faults, for people: one each, with a timeline of what came of it and a verdict.

base.py        what a scenario is, and what it works with
leaders.py     the leading scheduler dies, freezes, cannot make itself heard
servers.py     API servers die
stores.py      etcd loses its leader, its majority, its past
restore.py     etcd is restored from an older copy, under a cluster that runs
kubelets.py    two kubelets with one name
harm.py        one user floods a server, or creates pods that cost as much as a pod can
writers.py     many write the same few objects
crowd.py       pods enough to keep a scheduler busy; figures.py: what a history says in one number
table.py       all of them
"""
