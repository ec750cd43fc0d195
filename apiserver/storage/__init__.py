"""What the API server needs of etcd, as an interface, and what makes writes to it cheap and their outcomes known.

interface.py   a revisioned key-value store with transactions, leases and a watch; what it may raise
etcd/          the real one

committer.py   group commit: what waits at the same moment shares a transaction; a write happens at most once
grouping.py    which writes go into the next one: those of a key in their order (pure)
lane.py        one transaction after another, and whether each happened, even if its answer is lost
outcomes.py    what became of each write of a transaction: who failed, who goes again (pure)
sweeper.py     the commit markers of lanes that have gone are deleted, oldest first

compactor.py   history is forgotten when it has been overwritten for an interval or longer
measured.py    how long each call took
prefixed.py    all keys below a prefix, for control planes that share one etcd
"""
