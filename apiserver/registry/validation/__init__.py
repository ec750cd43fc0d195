"""Validation: what is wrong with an object, all of it, in Kubernetes' words and by field path.

Here are the rules that several kinds share, and those that fill a file of their own (of pods, of traffic to services). The
others are in the strategy of their kind (`apiserver.registry.strategies`).

Functions of values. Each appends what it finds to the list that it is given (`out`), so that a sound object costs no garbage:
this is a hot path. A check reads each field once, because reading one out of protobuf is what costs.

Fields that this version does not model travel as unknown bytes and are not judged.

    violations.py               the ways in which a field can be wrong, in Kubernetes' words

    metadata.py                 names, owners, finalizers, and what of metadata an update may not touch
    labels.py                   labels, annotations, and selectors of labels
    numbers.py                  what counts something, and bounds that may be percentages
    addresses.py                IP addresses, networks, ports
    text.py                     what no operating system takes
    resource_names.py           which resources containers, quotas and limit ranges may speak of
    resources.py                lists of them: requests against limits, judged once for all that are alike

    pods.py                     a new pod; pod_warnings.py: what in it does not do what it seems to
    pod_update.py               what of a pod may change after that: hardly anything
    pod_resize.py               what of it a resize may change: cpu and memory
    pod_status.py               a pod's phase moves forward, and what has ended stays ended
    pod_templates.py            templates, and selectors that must find what is made from them
    containers.py               a pod's containers: usual ones, init containers, sidecars
    environment.py, probes.py, security.py
                                parts of a container: variables; probes and hooks; identities and profiles
    affinity.py, spreading.py, taints.py
                                where a pod may and would rather go
    volumes.py                  volumes, and where they are mounted; sources.py: where the data are; files.py: what files show
    persistentvolumeclaims.py   what claims ask for; storage.py: what they share with volumes

    job_status.py               how a job ends is said once
    service_traffic.py          what could never bring traffic to a service
"""
