"""The scheduler's view of the cluster: nodes as a table of arrays, and the pods on them. Pure: no clock, no I/O.

cache.py     nodes and pods, including assumed pods; cluster events
table.py     one row per node, one column per fact: the table that plugins read
columns.py   columns with changing rows: labels, images, volumes in use
pod_index.py counts of matching pods per node, one column per selector
pod_info.py  pods, parsed once, and the nominations of preemptors
what_if.py   the table with pods added or removed
"""
