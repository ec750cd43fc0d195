"""`why`: the scheduler's explanation of a pod.

process.py  asks for it: the scheduler's code runs in a process of its own
text.py     as a person reads it
"""
