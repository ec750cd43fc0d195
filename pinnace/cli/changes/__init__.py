"""What changes objects, and what is told of it.

compare_and_swap.py  read, change, write, and again when somebody else was faster
apply_decisions.py   what `apply` does with each object, given what is there (pure); applier.py carries it out
edits.py             the little languages of `label`, `annotate` and `taint` (pure); labelling.py: what the first two share
deleting.py          many at once, and waiting until they are gone
draining.py          which pods of a node may go, and evicting them
rollouts.py          how far one is, what was before, and going back to it (pure)
virtual_nodes.py     new nodes of a fleet; faults.py: letting them fail, and pods crash (both pure)
"""
