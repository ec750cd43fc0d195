"""Which objects a command line means, and getting them.

targets.py     how they are named: `pods`, `pod/a node/b` (pure)
arguments.py   the arguments that name objects, and how a shell completes them
query.py       targets with a namespace and selectors, and what they find
manifests.py   what the files of `-f` hold
written.py     objects as people write them (pure)
containers.py  which pods and containers `logs` and `exec` mean
follower.py    objects for as long as they change
related.py     what is known of an object elsewhere: its events, a node's lease
"""
