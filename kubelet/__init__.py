"""The kubelet: one process that runs a fleet of virtual nodes and the pods that are bound to them.

fleet.py            the component: node session, node registration, pods
registration.py     Node objects: creates them, adopts them, and writes their status
node.py             the resources, addresses, pressure and simulated faults of virtual nodes
pod_manager.py      each pod from binding to removal: one record per pod, one queue and one loop for all
lifecycle/          one step of a pod's life, as a pure function
admission.py        what a pod takes from its node: resources, addresses, volumes
eviction.py         node-pressure eviction
status.py           the pod status; status_manager.py writes it to the API
runtime/            what runs containers: the interface, the fake runtime, and the process runtime
server.py           serves logs, exec and stats to API servers
run_log.py          records which pods ran and when, for the checkers

Start with pod_manager.py and lifecycle/.
"""
