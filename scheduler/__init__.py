"""The scheduler: decides which node each pod runs on. The story of one pod is in cycle.py, the whole in scheduler.py.

scheduler.py        the whole, under an election: what a standby keeps ready, and what ends with a term
main.py             its flags; entry.py: quiet about an interrupt until it runs
informers.py        what it hears of; feed.py: what that means for cache and queue
cache/              the nodes as a table, and the pods on them
queue/              which pod is next, and which must wait
config/             the configuration: who takes part, with what arguments

cycle.py            one decision: filter, score, assume; the same input gives the same node
framework/          what a plugin is, and how plugins are run; plugins/: those that are built in
preemption/         making room by removing pods of a lower priority
extenders/          services outside that have a say; consulting.py: cycles that wait for them, and hold nobody's heartbeat up

attempts.py         pods whose attempt may have ended a term: marked before, held back after
decision.py         what the cycle hands over to binding, and what binding tells in return
binding_cycles.py   what plugins do for a decision before it is sent: Permit, PreBind, Bind
binding.py          decisions in batches under the fence; nothing whose outcome is unknown is forgotten
verdict.py          what the answer to a bind says about the world

progress.py         whether a leader goes on with its work; one that does not gives the election up
reporter.py         events, and the condition of pods that have no place; recorders.py: in whose name
metrics.py          what is counted, under kube-scheduler's names
tracing.py          where the time of traced pods went
debugger.py         what it holds at this moment, as one consistent picture
explain/            why a pod is where it is; explaining.py: the program that `pinnace why` starts
"""
