"""What must hold, judged from the history of a run (docs/checking.md). Pure, but for files.py: a history in, a report out.

history.py         what happened in a run, as records: checkers read nothing else
facts.py           what of an object is in them; files.py: a history as lines of JSON
index.py           a history, sorted; snapshots.py: etcd's state at many revisions; timeline.py: calls in real time
selection.py       what a list or watch asks for; expected.py: the events that a watch must tell
faults.py          for how long faults last, and which time none of them covers

check.py           all checkers, each tried on the history
whole.py           H: etcd's history has no gaps, on which all else rests
bind_once.py       I1: a pod is bound at most once
capacity.py        I2: no node is over its allocatable
fencing.py         I3: no bind but by the present leader of the pod's scheduler
elections.py       I4: one holder for each token, and tokens grow
durability.py      I5: an acknowledged write survives
sessions.py        I6: no client sees an object go back
linearizable.py    I7: reads and writes have one order that agrees with real time
watches.py         I8, I9: a watch loses, repeats and reorders nothing; a bookmark means what it says
phases.py          I10: a pod's status moves along the phase graph, by one writer
run_log.py         I11: a pod runs on at most one node; running.py: I13: in one process at a time
pages.py           I12: the pages of a list are one snapshot
liveness.py        L1, L2: pods run and somebody leads, within a bound after the faults
service.py         L3, L4, F: pods are bound and users are answered while somebody does harm; what faults read

verdict.py         what a check says; report.py: the same for people and programs
"""
