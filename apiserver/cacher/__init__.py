"""The watch cache: the state of the cluster in memory, and any number of watches of it, for one watch of etcd.

cacher.py       the whole: what it guarantees to lists and watches, and what it does not promise
errors.py       what it raises, and what the reader is to do then

feed.py         loading all of it at one revision, then following, revision by revision
marks.py        of which history the revision is that a client knows; markers.py: is it still that one, after loading again?
progress.py     how far the cache is, and who waits for it; freshness.py: how far etcd is, asked once for all who ask

resource.py     what the cache has of one resource
entry.py        one version of one object: bytes first, parsed when somebody looks inside; event.py: the step to the next
store.py        the present state, in key order, and pods by node
ring.py         the recent past, from which watches resume; bounded by count and bytes
raw.py          keys that are no objects: elections

selection.py    which objects a reader wants
listing.py      which snapshot a list is of; all of its pages are of that one
token.py        where the next page goes on; readable by every server

watcher.py      one watch, from its beginning in the past to the present
snapshots.py    the states that watches begin with, shared, and kept no longer than history is
past.py         what a watcher is told before it is live, in chunks; catching_up.py: whose turn it is to be told
dispatch.py     telling those who are live: one response for all that select alike
batches.py      as much as one response can carry
outbox.py       what a watcher has still to send; who does not read pays, and nobody else
"""
