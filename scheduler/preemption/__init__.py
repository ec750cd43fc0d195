"""Preemption: making room for a pod that fits nowhere, by removing pods of a lower priority.

    rules       which pods of a node go; pure. Which node is chosen: scheduler.framework.victims
    candidates  the nodes where that may help, tried on the table
    search      what is known of them, kept from one pod to the next that is alike; found: those that are enough
    evictions   removing the victims, beside the next decisions
    handle      what PostFilter plugins make room with

scheduler.plugins.default_preemption puts them together; scheduler.cache.nominations keeps the room until the pod is there.
"""
