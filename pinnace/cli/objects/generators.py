"""Objects of `kubectl create KIND`, `run` and `expose`.

Source: kubectl, pkg/cmd/create, pkg/cmd/run and pkg/cmd/expose.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import ConfigMap, Namespace, Pod, PodTemplateSpec, Secret, Service, ServiceAccount
from pinnace.api.names import config_key
from pinnace.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from pinnace.api.scalars import STRING
from pinnace.cli.objects.query import Item
from pinnace.cli.outcomes import usage

LABEL = "app"
"""kubectl's label with the name of the deployment."""
RUN_LABEL = "run"
"""kubectl's label with the name of the pod of `run`."""
_LONGEST_NAME = 63


def new_namespace(name: str) -> Item:
    made = Namespace()
    made.metadata.name = name
    return NAMESPACES, made


def new_deployment(name: str, new_namespace: str, images: Sequence[str], replicas: int, command: Sequence[str]) -> Item:
    """Containers are named after their images. The API server rejects duplicate names."""
    made = Deployment()
    made.metadata.name, made.metadata.namespace = name, new_namespace
    made.spec.replicas = replicas
    template = made.spec.template
    _fill(template, images, command)
    for labels in (made.metadata.labels, made.spec.selector.matchLabels, template.metadata.labels):
        labels[LABEL] = name
    return DEPLOYMENTS, made


def new_job(name: str, new_namespace: str, image: str, command: Sequence[str]) -> Item:
    made = Job()
    made.metadata.name, made.metadata.namespace = name, new_namespace
    made.spec.template.spec.containers.add(name=name, image=image, command=command)
    made.spec.template.spec.restartPolicy = "Never"
    return JOBS, made


def data_of(literals: Sequence[str], files: Sequence[str]) -> dict[str, bytes]:
    """Return the values of `--from-literal` and `--from-file` by key. Raises Failure for an invalid or duplicate key, and for
    an unreadable file."""
    found: list[tuple[str, bytes]] = []
    for each in literals:
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise usage(f"invalid literal source {key or each}, expected key=value", hint="--from-literal KEY=VALUE")
        found.append((key, value.encode()))
    for each in files:
        key, _, name = each.rpartition("=")
        path = Path(name)
        paths = sorted(child for child in path.iterdir() if child.is_file()) if path.is_dir() and not key else [path]
        try:
            found += [(key or each.name, each.read_bytes()) for each in paths]
        except OSError as error:
            raise usage(f"error reading {name}: {error.strerror}", hint="--from-file [KEY=]FILE") from None
    keys = [key for key, _ in found]
    for key in keys:
        if problems := config_key(key):
            raise usage(f'"{key}" is not a valid key name: {problems[0]}', hint="specify another key: --from-file KEY=FILE")
        if keys.count(key) > 1:
            raise usage(f'cannot add key "{key}", another key by that name already exists', hint="use a key only once")
    return dict(found)


def new_config_map(name: str, new_namespace: str, data: Mapping[str, bytes]) -> Item:
    """Return a ConfigMap. Values that are not valid UTF-8 are stored in `binaryData`."""
    made = ConfigMap()
    made.metadata.name, made.metadata.namespace = name, new_namespace
    for key, value in data.items():
        try:
            made.data[key] = value.decode()
        except UnicodeDecodeError:
            made.binaryData[key] = value
    return CONFIG_MAPS, made


def new_secret(name: str, new_namespace: str, type_: str, data: Mapping[str, bytes]) -> Item:
    made = Secret(data=data)
    made.metadata.name, made.metadata.namespace = name, new_namespace
    if type_:
        made.type = type_
    return SECRETS, made


def new_service_account(name: str, new_namespace: str) -> Item:
    made = ServiceAccount()
    made.metadata.name, made.metadata.namespace = name, new_namespace
    return SERVICE_ACCOUNTS, made


def new_pod(
    name: str,
    new_namespace: str,
    image: str,
    *,
    arguments: Sequence[str] = (),
    is_command: bool = False,
    env: Sequence[tuple[str, str]] = (),
    labels: Mapping[str, str] | None = None,
    port: int = 0,
    restart: str = "Always",
) -> Item:
    """Return a pod with one container, as `kubectl run` creates it. The default for `labels` is run=NAME. `is_command`: the
    arguments are the command instead of the arguments of the image's command."""
    made = Pod()
    made.metadata.name, made.metadata.namespace = name, new_namespace
    made.metadata.labels.update({RUN_LABEL: name} if labels is None else labels)
    container = made.spec.containers.add(name=name, image=image)
    (container.command if is_command else container.args).extend(arguments)
    for key, value in env:
        container.env.add(name=key, value=value)
    if port:
        container.ports.add(containerPort=port)
    made.spec.restartPolicy = restart
    return PODS, made


def new_service(
    name: str,
    new_namespace: str,
    selector: Mapping[str, str],
    ports: Sequence[tuple[int, str, str]],
    type_: str,
    labels: Mapping[str, str],
) -> Item:
    """Return a service for the pods of the selector. `ports` are (port, target port, protocol); an empty target port means the
    port."""
    made = Service()
    made.metadata.name, made.metadata.namespace = name, new_namespace
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
    """Return kubectl's container name: the image name without registry, tag and digest."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    return re.sub("[^a-z0-9-]", "-", name)[:_LONGEST_NAME].strip("-") or "main"


def _fill(template: PodTemplateSpec, images: Sequence[str], command: Sequence[str]) -> None:
    for image in images:
        template.spec.containers.add(name=container_name(image), image=image, command=command)
