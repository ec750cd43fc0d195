"""Templates of pods and selectors of labels, as cells of a table."""

from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.selectors import from_message
from pinnace.printers.columns import NONE

WIDE = ("CONTAINERS", "IMAGES", "SELECTOR")


def wide(template: PodTemplateSpec, selector: LabelSelector) -> tuple[str, str, str]:
    """The cells under WIDE."""
    containers = template.spec.containers
    named, images = (",".join(getattr(each, field) for each in containers) for field in ("name", "image"))
    return named, images, str(from_message(selector)) or NONE
