"""Extenders: services outside the scheduler that have a say in its decisions, as Kubernetes' webhooks do.

    configuration  what is known of one: where it is, which verbs it has, which pods it wants to hear of
    extender       one of them, asked over a Transport: `http` (Kubernetes' JSON) or `rpc` (proto/pinnace/api/extender.proto)
    asking         all of them that a pod interests, asked in their order; the answers make an Opinion
    opinion        what they said, as a value: the scheduling cycle takes it into account, and knows nothing of networks
    binder         the one that binds, as a Bind plugin

A pod that interests no extender never meets any of this. What happens while they are asked: `scheduler.consulting`.

Source: https://github.com/kubernetes/design-proposals-archive/blob/main/scheduling/scheduler_extender.md, and extender.go in
k8s.io/kubernetes/pkg/scheduler
"""
