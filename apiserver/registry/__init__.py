"""What may be written, and how: the verbs of every resource, and what is particular to a kind.

store.py        the verbs of one resource, the same for all
strategy.py     what a kind decides for itself; strategies/: a file for each kind
validation/     what is wrong with an object: the rules that several kinds share

creation.py     a client's object becomes one of ours: identity, admission, defaults, validation, webhooks
patching.py     what a patch makes of an object
deletion.py     preconditions, finalizers, grace
admission.py    what is asked of admission and webhooks: the interfaces
extent.py       an object may have only so many parts: they are counted before anybody looks inside
migration.py    objects that an earlier version stored are rewritten in the present form
warnings.py     what is said of a write that is accepted

mutation.py     read, step, compare-and-swap, and again: a write commits only against the version that its step saw
fencing.py      what is written in a leader's name commits only while it leads

binding.py      a pod is bound at most once, and only by who leads
eviction.py     a delete that asks disruption budgets first: no disruption is taken twice
events.py       events expire, and like ones are merged; retention.py: and there are only so many
"""
