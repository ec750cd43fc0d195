"""What can be done to a cluster.

base.py        Fault, and Kind: how a fault is chosen, for how long, beside which others
processes.py   killed, frozen, rolled, asked to go, doubled
network.py     cut off, swallowed, slow, reset
storage.py     etcd: quorum, leadership, compaction, space, its members
limits.py      too few descriptors, too little memory, no room for logs
certificates.py  certificates that are replaced, or expire
clocks.py      wall clocks that are wrong
harm.py        pods by which one user harms the scheduler
crowds.py      clients that behave badly
table.py       all of them
"""
