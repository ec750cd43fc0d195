"""The scheduler's view of the cluster: nodes as a table of arrays, and their pods. Pure: no clock, no I/O.

cache.py     nodes, bound and assumed pods, and cluster events
table.py     the table that plugins read: one row per node, one column per property
columns.py   columns with a variable number of rows: labels, images, volumes in use
pod_index.py the number of matching pods per node, one column per selector
pod_info.py  parsed pods, and the nominations of preemptors
what_if.py   the table with pods added or removed
"""
