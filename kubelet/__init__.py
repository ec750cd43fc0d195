"""The kubelet: a process that plays a fleet of virtual nodes, and runs the pods that are bound to them.

fleet.py            the whole: sessions, nodes, pods and how they come together
main.py             its flags, and the parts that they choose; entry.py: quiet about an interrupt until it runs

nodes.py            node objects as values: a new one, and what is left to do for one that exists
registration.py     bringing them to where they are needed, whatever has been done of it already
virtualnode.py      the room and the addresses of one node; virtualnodes.py: all of them, and what has befallen each
addresses.py        addresses that follow from a node's name: every process that plays it gives out the same
taken.py            nodes that a newer session has are left to it while it keeps their leases
faults.py           what annotations ask to be pretended: machines without power, networks gone, containers that crash

podwatch.py         the one watch of pods, which follows the set of nodes
pods.py             each pod from its binding to its removal: one record, one queue, one loop for all
record.py           what is known of one pod; template.py: what it has in common with all that are alike
delayqueue.py       whose turn it is, now or later
lifecycle/          one step of a pod's life, as a pure function

admission.py        what a pod takes of its node, and gives back
secondlook.py       nobody is refused for what the node was like before he was bound
preemption.py       who ends so that a critical pod has room (pure)
housekeeping.py     nodes that are short of something; eviction.py: who has to go then (pure)
trips.py            a pod that trips a bug costs the others nothing

status.py           what the API is told of a pod; containerstatus.py: of its containers
reported.py         the same, read again by the process that comes later
reports.py          telling it, on top of the latest version; a pod is removed when its end is known there
batches.py          writes in batches: a key is in one call at a time, and none is lost
refused.py          what was refused by itself is tried again, ever later

runtime.py          what runs containers: the interface; no call of it waits
fake.py             containers that only pass through their states, as their pod (behaviour.py) or YAML (stages/) says
process/            containers that are processes of this machine
volumes.py          what provides volumes: the interface, and volumes that are pretended
streams.py          logs and exec: the interface

server.py           what is served to API servers, and to nobody else
stats.py            what is used, measured when it is asked for; declared.py: what pretended containers use (pure)
metrics.py          what is counted
tracing.py          how long pods took whose traces are kept
run_log.py          which pods ran here and when, for those who check that none ran on two nodes
"""
