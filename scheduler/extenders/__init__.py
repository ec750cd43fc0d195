"""Extenders: HTTP or gRPC services that take part in scheduling decisions, like Kubernetes' scheduler extenders.

Source: https://github.com/kubernetes/design-proposals-archive/blob/main/scheduling/scheduler_extender.md, and extender.go in
k8s.io/kubernetes/pkg/scheduler
"""
