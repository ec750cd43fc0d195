"""The fields by which objects can be selected, per resource, and how each is read from an object.

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
        "spec.nodeName": lambda pod: pod.spec.nodeName,
        "spec.schedulerName": lambda pod: pod.spec.schedulerName,
        "status.phase": lambda pod: pod.status.phase,
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
        "involvedObject.kind": lambda event: event.involvedObject.kind,
        "involvedObject.name": lambda event: event.involvedObject.name,
        "involvedObject.namespace": lambda event: event.involvedObject.namespace,
        "involvedObject.uid": lambda event: event.involvedObject.uid,
        "reason": lambda event: event.reason,
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
    "replicasets": _NAMESPACED,
    "deployments": _NAMESPACED,
    "jobs": _NAMESPACED,
    "endpointslices": _NAMESPACED,
}
"""By the resource's plural."""
