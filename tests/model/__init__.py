"""Exhaustive models of the election: within bounds, every interleaving of what the code may do and what may befall it.

checker.py   a small explicit-state model checker
lease.py     clocks: may a leader believe in itself longer than its lease lives?
protocol.py  the states of the election protocol: etcd, API servers, candidates, what is on its way between them
rules.py     its actions by name, with the code that each abstracts; its faults, and its guards
candidates.py, campaigns.py, world.py   the actions: of candidates, of API servers, of everything else
election.py  put together, with the invariants
runs.py      what is checked, within which bounds

What it shows, and what it leaves out, is told in docs/design/election.md. `python -m tests.model --help` runs it by hand.
"""
