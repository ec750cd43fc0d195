"""The API server: the only door to etcd. All that it keeps is there, so there may be any number of equal ones.

assembly.py   all parts of a server and how they are joined, without a transport
entry.py      quiet about an interrupt until it runs
main.py       its flags, and what the process does until its last breath; flags.py: those of its way to kubelets
server.py     the assembly behind gRPC
lines.py      one port and several gRPC servers behind it: a client who sends much delays those of his own line
opening.py    when calls are taken: not before what was loaded is what it should be, also after a restore of etcd
identity.py   which cluster the keys in etcd belong to: a server of another one refuses to serve them
bootstrap.py  what every cluster must have, made by the first server that finds it missing

services/     the methods of the API: what is asked, what is answered, in which words
auth/         who calls, and what he may do
flow/         who waits when there is too much to do, and who is sent away
registry/     what may be written: the verbs, and what each kind decides for itself
admission/    what the cluster has to say about a write; webhooks/: services outside that have a say, too
quota/        what a namespace uses, charged in the transaction of what uses it
cacher/       the state of the cluster in memory: lists and watches are answered from it
storage/      what is needed of etcd: transactions that are known to have happened or not

errors.py     how a call is refused, in Kubernetes' words
sessions.py   etcd leases that live for as long as their peer beats: of candidates and fleets
kubelets.py   calls of kubelets, for logs, exec and what is used
uids.py       uids from randomness that is passed in
stages.py     where the CPU time goes, if somebody asks
"""
