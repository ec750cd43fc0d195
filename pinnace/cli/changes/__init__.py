"""What changes objects, and what is told of it.

compare_and_swap.py  changing the objects of a query, one by one
apply_decisions.py   what `apply` does with each object, given what is there (pure); applier.py carries it out
generators.py        the objects that `create`, `run` and `expose` make without a manifest (pure); creating.py creates them
editing.py           what `edit` puts before a person, and what it makes of what comes back
edits.py             the little languages of `label`, `annotate` and `taint` (pure); labelling.py: what the first two share
deleting.py          many objects at once
draining.py          which pods of a node may go, and evicting them
rollouts.py          of deployments: how far one is, and going back to what was before (pure)
nodes.py             nodes that are named or selected: what `cordon`, `uncordon` and `node` share
virtual_nodes.py     new nodes of a fleet; faults.py: letting them fail, and pods crash (both pure)
"""
