"""What the verbs of local clusters share.

contexts.py    which cluster is meant, by its folder; and how other commands find it
elsewhere.py   which other clusters run
running.py     what ends a verb, how the errors of clusters are told, and taking a cluster down
starting.py    its processes by their names, and starting them again
progress.py    how far long work has come
schedulers.py  what schedulers say of themselves
"""
