"""Exhaustive models of the election: within bounds, all interleavings of actions of the code and of faults.

checker.py   a small explicit-state model checker
lease.py     clocks: a term must end before the lease expires
protocol.py  the states of the election protocol: etcd, API servers, candidates, messages in flight
rules.py     the actions with the code that each abstracts, the faults, and the guards
candidates.py, campaigns.py, world.py   the actions of candidates, of API servers, and of their environment
election.py  the complete model with its invariants
runs.py      the runs of the checker and their bounds

docs/design/election.md describes the results and the limits of the models. `python -m tests.model --help` lists the commands.
"""
