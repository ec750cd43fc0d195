"""Objects that need no manifest, as `kubectl create KIND` makes them: enough to begin with. Pure."""

import re
from collections.abc import Sequence

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Namespace, PodTemplateSpec
from pinnace.api.resources import DEPLOYMENTS, JOBS, NAMESPACES
from pinnace.cli.objects.targets import Item

LABEL = "app"
"""Has the name of the deployment: kubectl's choice."""
_LONGEST_NAME = 63


def namespace(name: str) -> Item:
    made = Namespace()
    made.metadata.name = name
    return NAMESPACES, made


def deployment(name: str, namespace: str, images: Sequence[str], replicas: int, command: Sequence[str]) -> Item:
    """Images that are called alike make containers of one name, which the server refuses."""
    made = Deployment()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.spec.replicas = replicas
    template = made.spec.template
    _fill(template, images, command)
    for labels in (made.metadata.labels, made.spec.selector.matchLabels, template.metadata.labels):
        labels[LABEL] = name
    return DEPLOYMENTS, made


def job(name: str, namespace: str, image: str, command: Sequence[str]) -> Item:
    made = Job()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.spec.template.spec.containers.add(name=name, image=image, command=command)
    made.spec.template.spec.restartPolicy = "Never"
    return JOBS, made


def container_name(image: str) -> str:
    """As kubectl does: what the image is called, without its registry, tag and digest."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    return re.sub("[^a-z0-9-]", "-", name)[:_LONGEST_NAME].strip("-") or "main"


def _fill(template: PodTemplateSpec, images: Sequence[str], command: Sequence[str]) -> None:
    for image in images:
        template.spec.containers.add(name=container_name(image), image=image, command=command)
