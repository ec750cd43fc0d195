"""All about a replica set.

Source: kubectl, pkg/describe, ReplicaSetDescriber.
"""

from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.cli.describe.templates import head_of, template
from pinnace.cli.describe.text import Fields, Rows


def describe(replica_set: ReplicaSet) -> Fields:
    spec, status = replica_set.spec, replica_set.status
    fields = head_of(replica_set.metadata, spec.selector)
    fields["Replicas"] = f"{status.replicas} current / {spec.replicas} desired"
    fields["Pods Status"] = f"{status.readyReplicas} ready / {status.availableReplicas} available"
    fields["Pod Template"] = template(spec.template)
    if status.conditions:
        conditions = [(condition.type, condition.status, condition.reason) for condition in status.conditions]
        fields["Conditions"] = Rows(("Type", "Status", "Reason"), conditions)
    return fields
