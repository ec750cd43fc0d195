"""Extenders: services outside the scheduler that have a say in its decisions, as Kubernetes' webhooks do.

    extenders      those of a scheduler, which all its profiles share
    configuration  what is known of one: where it is, which verbs it has, which pods it wants to hear of (`interest`)
    extender       one of them, asked over a `transport`
    http, rpc      the two there are: Kubernetes' JSON (`wire`), and proto/pinnace/api/extender.proto
    asking         all of them that a pod interests, asked in their order; the answers make an Opinion
    opinion        what they said, as a value: the scheduling cycle takes it into account, and knows nothing of networks
    binder         the one that binds, as a Bind plugin
    errors         what can go wrong

A pod that interests no extender never meets any of this. What happens while they are asked: `scheduler.consulting`.

Source: https://github.com/kubernetes/design-proposals-archive/blob/main/scheduling/scheduler_extender.md, and extender.go in
k8s.io/kubernetes/pkg/scheduler
"""
