"""The environment variables of a container: what its spec says, and what every process needs.

    PATH, LANG          the kubelet's: there is no image that could say
    HOME, TMPDIR, PWD   in the pod's folder, so that nothing of the user who runs the kubelet is found by accident
    HOSTNAME            the pod's name, or as much of it as a host's may have
    PINNACE_TERMINATION_MESSAGE
                        the file at terminationMessagePath (see messages)
    POD_IP, PINNACE_VOLUME_<NAME>
                        the pod's address, and where each volume is: nothing is mounted (see volumes)

Variables of the spec come after these, and win. Values may refer to what was defined before them (see expansion), but not to
HOSTNAME, PINNACE_TERMINATION_MESSAGE and what is in the first two lines: in Kubernetes the image and the runtime bring these,
and the kubelet does not know them. Fields of the pod and resources of its containers are Kubernetes' downward API.
Source: https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

import math
import os
import re
from collections.abc import Mapping

from kubelet.addresses import Addresses
from kubelet.process.expansion import Expansion
from kubelet.runtime import Unsupported
from pinnace.api.core_v1_pb2 import Container, EnvVar, ObjectFieldSelector, Pod, ResourceFieldSelector
from pinnace.api.quantity import QuantityError, parse

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTNAME = 63
"""Characters that a host name may have, as Kubernetes cuts it."""
_SHOWN = 100
"""Characters of a variable's name that a message shows: it may have any number."""


def surroundings(pod: Pod, home: str) -> dict[str, str]:
    """What every process finds, and nothing refers to."""
    return {
        "PATH": os.environ.get("PATH", _DEFAULT_PATH),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": home,
        "TMPDIR": home,
        "PWD": home,
        "HOSTNAME": (pod.spec.hostname or pod.metadata.name)[:_HOSTNAME].rstrip("-."),
    }


def environment(
    pod: Pod, container: Container, addresses: Addresses, volumes: Mapping[str, str], expansion: Expansion
) -> dict[str, str]:
    """What commands and arguments may refer to. `volumes`: where each one is, by name. Raises Unsupported."""
    variables = {"POD_IP": addresses.pod}
    for name, path in volumes.items():
        variables[f"PINNACE_VOLUME_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = path
    if container.envFrom:
        raise Unsupported(f'container "{container.name}": envFrom: the process runtime has no config maps and no secrets')
    for variable in container.env:
        what = f'env "{variable.name:.{_SHOWN}}"'
        if not variable.HasField("valueFrom"):
            variables[variable.name] = expansion.expand(variable.value, variables, what)
        elif (value := _value(pod, container, variable, addresses)) is not None:
            variables[variable.name] = expansion.take(value, what)
    return variables


def _value(pod: Pod, container: Container, variable: EnvVar, addresses: Addresses) -> str | None:
    """From elsewhere. None: the variable may be missing, and is."""
    source = variable.valueFrom
    where = f'container "{container.name}": env "{variable.name}"'
    if source.HasField("fieldRef"):
        return _field(pod, source.fieldRef, addresses, where)
    if source.HasField("resourceFieldRef"):
        return _resource(pod, container, source.resourceFieldRef, where)
    for kind, key in (("configMapKeyRef", "config maps"), ("secretKeyRef", "secrets")):
        if source.HasField(kind):
            if getattr(source, kind).optional:
                return None
            raise Unsupported(f"{where}: the process runtime has no {key}")
    raise Unsupported(f"{where}: valueFrom names no source that the process runtime has")


def _field(pod: Pod, selector: ObjectFieldSelector, addresses: Addresses, where: str) -> str:
    path = selector.fieldPath
    if keyed := _KEYED.fullmatch(path):
        found: str = getattr(pod.metadata, keyed[1]).get(keyed[2], "")
        return found
    simple = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.nodeName,
        "spec.serviceAccountName": pod.spec.serviceAccountName,
        "status.hostIP": addresses.host,
        "status.hostIPs": addresses.host,
        "status.podIP": addresses.pod,
        "status.podIPs": addresses.pod,
    }
    if path not in simple:
        raise Unsupported(f'{where}: fieldPath "{path}" is none of those that a variable can have')
    return simple[path]


def _resource(pod: Pod, container: Container, selector: ResourceFieldSelector, where: str) -> str:
    """A limit or request, in units of the divisor, rounded up. A limit that is not set is 0 here: there is no share of the node
    that would be the container's."""
    named = selector.containerName or container.name
    everybody = (*pod.spec.containers, *pod.spec.initContainers)
    owner = next((each for each in everybody if each.name == named), None)
    kind, _, resource = selector.resource.partition(".")
    if owner is None or kind not in ("limits", "requests") or not resource:
        raise Unsupported(f'{where}: resource "{selector.resource}" of container "{named}" is nothing that there is')
    try:
        found = getattr(owner.resources, kind).get(resource)
        amount = parse(found.string if found is not None else "0")
        divisor = parse(selector.divisor.string or "1") or parse("1")
    except QuantityError as error:
        raise Unsupported(f"{where}: {error}") from None
    return str(math.ceil(amount / divisor))
