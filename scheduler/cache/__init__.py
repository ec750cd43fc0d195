"""What the scheduler knows of the cluster: nodes as a table, and the pods that use them. Pure: no clock, no I/O.

cache.py            nodes and pods; an assumed pod takes room at once, and no timer forgets it
table.py            a row for each node, a column for each fact: what plugins read
columns.py          columns whose rows come and go, without holes
journal.py          which rows have changed since, as far back as it remembers
changes.py          what happened in the cluster, in the words in which plugins say what they wait for

pod_info.py         a pod, and what is asked of it again and again
placed_pod.py       what is remembered of a pod that takes room
pod_terms.py        what pods state about other pods, parsed once for all that are alike
pod_index.py        how many pods of a kind each node has: a column for each question that somebody asked
selector_index.py   which of many selectors match a pod, without looking at all of them
priority_sums.py    how much the pods below a priority take up, node by node
images.py           which nodes have which images
used_volumes.py     which claims and disks the pods on nodes use
nominations.py      for whom room is being made, and from whom it is kept

what_if.py          the table as it would be without some pods, or with others, while the question is open
freed.py            the same for one node and its room, without touching the table
one_more.py         the table with one more pod on every node
some_nodes.py       some rows, as a table
"""
