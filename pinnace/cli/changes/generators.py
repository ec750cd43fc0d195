"""Objects that need no manifest, as `kubectl create KIND`, `run` and `expose` make them. Pure."""

import re
from collections.abc import Mapping, Sequence

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Namespace, Pod, PodTemplateSpec, Service
from pinnace.api.resources import DEPLOYMENTS, JOBS, NAMESPACES, PODS, SERVICES
from pinnace.api.scalars import STRING
from pinnace.cli.objects.targets import Item

LABEL = "app"
"""Has the name of the deployment: kubectl's choice."""
RUN_LABEL = "run"
"""Has the name of the pod that `run` makes: kubectl's choice."""
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


def pod(
    name: str,
    namespace: str,
    image: str,
    *,
    arguments: Sequence[str] = (),
    is_command: bool = False,
    env: Sequence[tuple[str, str]] = (),
    labels: Mapping[str, str] | None = None,
    port: int = 0,
    restart: str = "Always",
) -> Item:
    """A pod of one container, as `kubectl run` makes it. `labels`: None is run=NAME. `is_command`: the arguments are the
    command, not those of the image's command."""
    made = Pod()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.metadata.labels.update({RUN_LABEL: name} if labels is None else labels)
    container = made.spec.containers.add(name=name, image=image)
    (container.command if is_command else container.args).extend(arguments)
    for key, value in env:
        container.env.add(name=key, value=value)
    if port:
        container.ports.add(containerPort=port)
    made.spec.restartPolicy = restart
    return PODS, made


def service(
    name: str,
    namespace: str,
    selector: Mapping[str, str],
    ports: Sequence[tuple[int, str, str]],
    type_: str,
    labels: Mapping[str, str],
) -> Item:
    """A service in front of the pods that the selector matches. `ports`: (port, target port, protocol) each; an empty target is
    the port itself."""
    made = Service()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.metadata.labels.update(labels)
    made.spec.selector.update(selector)
    made.spec.type = type_
    for port, target, protocol in ports:
        entry = made.spec.ports.add(port=port, protocol=protocol)
        if len(ports) > 1:
            entry.name = f"port-{len(made.spec.ports)}"
        if target and not target.isdigit():
            entry.targetPort.type, entry.targetPort.strVal = STRING, target
        else:
            entry.targetPort.intVal = int(target or port)
    return SERVICES, made


def container_name(image: str) -> str:
    """As kubectl does: what the image is called, without its registry, tag and digest."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    return re.sub("[^a-z0-9-]", "-", name)[:_LONGEST_NAME].strip("-") or "main"


def _fill(template: PodTemplateSpec, images: Sequence[str], command: Sequence[str]) -> None:
    for image in images:
        template.spec.containers.add(name=container_name(image), image=image, command=command)
