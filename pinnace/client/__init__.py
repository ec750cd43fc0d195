"""The client library: everything that speaks to API servers does so through it.

client.py       the whole API as one client; resource.py: the standard verbs, and which writes may be repeated
swap.py         changing what is there: read, change, update, and again when somebody was faster
errors.py       what a call can raise: did nothing happen, or may it have happened?
usage.py        what nodes and pods use

caller.py       what clients call through: a connection, or somebody between it and them
connection.py   one of several equal servers at a time; a call is sent again only when nothing can have happened
course.py       what is to be said of a call that is given up
peer.py         one server, and whether there is a connection to it; diagnosis.py: why there is none
streams.py      streams from one server until they end; nothing there resumes one

config.py       where the servers are, and what is shown to them; kubeconfig.py: the file, shared by many who change it
contexts.py     adding, choosing and removing contexts; flags.py: the same for components

informer.py     a local copy that follows the server: nothing is lost or repeated, of one history; index.py: by something else
lives.py        etcd was restored: what a component knows is of a history that is gone, so it begins anew

election.py     standing for election: a candidate stands down before its key can be gone
standby.py      ready while others lead; a term begins behind the barrier
guarded.py      a leader's calls: none is sent after its term, and what was sent is fenced
heartbeat.py    a fleet's leases live as long as one server can be reached; pulse.py: what was answered, and when (pure)
events.py       recording events: never blocks, never raises, loses what does not fit
"""

import os

# gRPC's core writes to stderr, in the midst of a command's output, when a server goes away; calls say so anyway. It reads this
# when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
