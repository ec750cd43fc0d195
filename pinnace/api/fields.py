"""The fields by which objects can be selected, per resource, and how each is read from an object: those of Kubernetes.

The same tables are in the comments of the services in proto/; a test compares them.
"""

from collections.abc import Callable, Mapping
from typing import Any

Read = Callable[[Any], str]
"""The field of an object, as a selector writes it: absent is "", booleans are "true" and "false"."""

_NAME: Mapping[str, Read] = {"metadata.name": lambda obj: obj.metadata.name}
_NAMESPACED: Mapping[str, Read] = {**_NAME, "metadata.namespace": lambda obj: obj.metadata.namespace}

FIELDS: Mapping[str, Mapping[str, Read]] = {
    "pods": {
        **_NAMESPACED,
        "spec.hostNetwork": lambda pod: "true" if pod.spec.hostNetwork else "false",
        "spec.nodeName": lambda pod: pod.spec.nodeName,
        "spec.restartPolicy": lambda pod: pod.spec.restartPolicy,
        "spec.schedulerName": lambda pod: pod.spec.schedulerName,
        "spec.serviceAccountName": lambda pod: pod.spec.serviceAccountName,
        "status.nominatedNodeName": lambda pod: pod.status.nominatedNodeName,
        "status.phase": lambda pod: pod.status.phase,
        "status.podIP": lambda pod: pod.status.podIP,
    },
    "nodes": {
        **_NAME,
        "spec.unschedulable": lambda node: "true" if node.spec.unschedulable else "false",
    },
    "namespaces": {
        **_NAME,
        "status.phase": lambda namespace: namespace.status.phase,
    },
    "events": {
        **_NAMESPACED,
        "involvedObject.apiVersion": lambda event: event.involvedObject.apiVersion,
        "involvedObject.fieldPath": lambda event: event.involvedObject.fieldPath,
        "involvedObject.kind": lambda event: event.involvedObject.kind,
        "involvedObject.name": lambda event: event.involvedObject.name,
        "involvedObject.namespace": lambda event: event.involvedObject.namespace,
        "involvedObject.resourceVersion": lambda event: event.involvedObject.resourceVersion,
        "involvedObject.uid": lambda event: event.involvedObject.uid,
        "reason": lambda event: event.reason,
        "reportingComponent": lambda event: event.reportingComponent,
        "source": lambda event: event.source.component or event.reportingComponent,
        "type": lambda event: event.type,
    },
    "priorityclasses": _NAME,
    "leases": _NAMESPACED,
    "persistentvolumes": _NAME,
    "persistentvolumeclaims": _NAMESPACED,
    "storageclasses": _NAME,
    "csinodes": _NAME,
    "services": {
        **_NAMESPACED,
        "spec.clusterIP": lambda service: service.spec.clusterIP,
        "spec.type": lambda service: service.spec.type,
    },
    "poddisruptionbudgets": _NAMESPACED,
    "resourcequotas": _NAMESPACED,
    "limitranges": _NAMESPACED,
    "roles": _NAMESPACED,
    "clusterroles": _NAME,
    "rolebindings": _NAMESPACED,
    "clusterrolebindings": _NAME,
    "replicasets": {
        **_NAMESPACED,
        "status.replicas": lambda replicaset: str(replicaset.status.replicas),
    },
    "deployments": _NAMESPACED,
    "jobs": {
        **_NAMESPACED,
        "status.successful": lambda job: str(job.status.succeeded),
    },
    "endpointslices": _NAMESPACED,
}
"""By the resource's plural."""
