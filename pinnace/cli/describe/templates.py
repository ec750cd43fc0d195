"""What the descriptions of those who make pods share: the template, and whose it is.

Source: kubectl, pkg/describe, DescribePodTemplate.
"""

from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.meta_v1_pb2 import LabelSelector, ObjectMeta
from pinnace.api.selectors import from_message
from pinnace.cli.describe.common import annotations, controlled_by, head
from pinnace.cli.describe.containers import containers
from pinnace.cli.describe.text import NONE, Fields, Value, pairs
from pinnace.cli.describe.volumes import volumes


def head_of(metadata: ObjectMeta, selector: LabelSelector) -> dict[str, Value]:
    """How the description of a set of pods begins."""
    fields = head(metadata)
    fields["Selector"] = str(from_message(selector)) or NONE
    return {**fields, **controlled_by(metadata)}


def template(template: PodTemplateSpec) -> Fields:
    spec = template.spec
    fields: dict[str, Value] = {"Labels": pairs(template.metadata.labels)}
    if told := annotations(template.metadata):
        fields["Annotations"] = told
    if spec.serviceAccountName:
        fields["Service Account"] = spec.serviceAccountName
    if spec.initContainers:
        fields["Init Containers"] = containers(spec.initContainers)
    fields["Containers"] = containers(spec.containers)
    fields["Volumes"] = volumes(spec.volumes)
    fields["Node-Selectors"] = pairs(spec.nodeSelector)
    return fields
