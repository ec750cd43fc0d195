"""The methods of the API. Services translate messages into what the registry, the cacher and etcd's keys understand, and back.

methods.py          the way of every call: parsed, given a seat, allowed, served, counted; gRPC and the simulation go it alike
context.py          what a service may ask about a call, and for how long it may wait
levels.py           how important a call is: its priority level
handlers.py         methods as gRPC handlers, and nothing else: the certificate becomes a user, a refusal a status
errors.py           what each exception says to the one who called; nobody else translates it
requests.py         ids of calls, by which the audit log and the log are found
metrics.py          what is counted, under Kubernetes' names

resource.py         the standard verbs, for any resource
namespaces.py, nodes.py, pods.py, events.py
                    those kinds that have more than the standard verbs
selecting.py        what a list or watch is about, and how long a selector may be
tables.py           lists as the rows that `get` prints
evictions.py        many evictions at once: the pods of one budget are put to it together
authorization.py    who one is, and what somebody may do
discovery.py        health and reflection, as methods like all others
version.py          which version of the software this server runs

streaming.py        logs and exec, passed on as they come; containers.py: which container is meant
kubelets.py         kubelets as services see them; resource_metrics.py: what their nodes and pods use
tenure.py           a stream ends soon after its caller may not have it any more

conversation.py     a stream in both directions as a mailbox: the one who hears is not cancelled with the call
records.py          reading what they leave in etcd: what cannot be read ends no session

elections.py        the elections of this server: which candidate talks to which of the following
campaign.py         one candidate, from its first message to its last
contest.py          whose turn it is among the candidates of one server; only the key decides who leads
leadership.py       the election's key: why there is one leader, and it is not deposed by mistake
transfer.py         making another lead: nobody is deposed before he has accepted
terms.py            who led, from when to when, why it ended, and who waits: for people
restores.py         after a restore of etcd, ends the terms that the backup has, and only these

heartbeats.py       the fleets of kubelets whose sessions this server holds
fleet.py            one of them: Lease objects exist while a session that beats holds them
leases.py           Lease objects as they are read: renewTime is that of the session
nodelease.py        who plays a node, by its Lease: the fleet that was born later (pure)
"""
