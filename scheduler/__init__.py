"""The scheduler: decides which node each pod runs on.

scheduler.py          the component: leader election, the scheduling loop, and the results of binds
scheduling_cycle.py   one decision: filter, score, assume. The same input gives the same node
binding_cycle.py      Permit, PreBind and Bind; binds are sent in batches under the leader's fence
queue.py              pods that wait, and the events that move them
informers.py          watches, and the event handlers that update the cache and the queue
cache/                nodes as a table of arrays, and the pods on them
framework/            the plugin interface, and the code that runs plugins; plugins/ has the built-in ones
preemption.py         evicts pods of lower priority to make room
extenders/            HTTP and gRPC scheduler extenders
attempts.py           marks pods whose scheduling attempt may have ended a leader's term
explaining.py         the program behind `pinnace why`; explain/ has the analysis

Start with scheduling_cycle.py.
"""
