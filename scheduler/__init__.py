"""The scheduler: selects a node for each pod.

scheduler.py          the component: leader election, the scheduling loop, and the results of binds
scheduling_cycle.py   one deterministic scheduling decision: select a node, assume
node_selector.py      selects the node: filter and score, with or without the equivalence cache
binding_cycle.py      Permit, PreBind and Bind; binds are sent in batches under the leader's fence
queue.py              pending pods, and the events that requeue them
informers.py          watches, and the event handlers that update the cache and the queue
cache/                nodes as a table of arrays, and their pods
framework/            the plugin interface, and the runtime of plugins; plugins/ has the built-in plugins
preemption.py         evicts pods of lower priority
extenders/            HTTP and gRPC scheduler extenders
attempts.py           marks pods whose scheduling attempt may have ended a leader's term
explaining.py         the command `pinnace why`; explain/ has the analysis

Start with scheduling_cycle.py.
"""
