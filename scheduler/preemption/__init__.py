"""Preemption: making room for a pod that fits nowhere, by removing pods of a lower priority.

    rules       which pods of a node go, and which node is chosen; pure
    candidates  the nodes where that may help, found for all of them at once, and tried on the table; found: what comes of it
    evictions   removing the victims, beside the next decisions
    handle      what PostFilter plugins make room with

scheduler.plugins.default_preemption puts them together; scheduler.cache.nominations keeps the room until the pod is there.
"""
