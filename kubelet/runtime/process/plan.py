"""From a container's spec to what its shim starts: command, environment variables and directories.

Environment variables:

    PATH, LANG          the kubelet's, because there is no image
    HOME, TMPDIR, PWD   in the pod's directory, so that processes do not use files of the kubelet's user by accident
    HOSTNAME            the pod's name, truncated to the length of a host name
    PINNACE_TERMINATION_MESSAGE
                        the file for terminationMessagePath
    POD_IP, PINNACE_VOLUME_<NAME>
                        the pod's address, and the path of each volume
    WEB_SERVICE_HOST, ... addresses and ports of services: see kubelet.service_variables

Variables of the spec come after these and override them. `$(NAME)` in commands, arguments and values is replaced by a variable
that is defined before, or left as it is if there is none; `$$` becomes `$`. References to HOSTNAME,
PINNACE_TERMINATION_MESSAGE and the first two lines are not replaced: in Kubernetes the image and the runtime set these.
References can grow exponentially, so the total size is limited to what Linux accepts (`Expansion`). Fields and resources are
Kubernetes' downward API.

Volumes: a process has no mount namespace, so a mountPath such as /data cannot exist. Each container has a root directory in
which every mountPath is a symbolic link to the volume, and starts there: `data/index.html` is in the volume,
`/data/index.html` is a file of the machine. emptyDir and hostPath are supported; readOnly, sizeLimit and medium are ignored.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/,
https://kubernetes.io/docs/concepts/workloads/pods/downward-api/, https://kubernetes.io/docs/concepts/storage/volumes/
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from kubelet.addresses import Addresses
from kubelet.runtime.interface import Unsupported
from kubelet.runtime.process.files import Plan
from pinnace.api.core_v1_pb2 import Container, EnvVar, ObjectFieldSelector, Pod, ResourceFieldSelector, Volume
from pinnace.api.quantity import QuantityError, amount, parse

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
LONGEST = 128 << 10
"""Maximum length of an argument or variable: MAX_ARG_STRLEN, see execve(2)."""
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
LARGEST = 2 << 20
"""Maximum length of all arguments and variables: a quarter of the default stack limit of 8 MiB."""


class Expansion:
    """The expansions of one container. Replaced variables count, too."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._left = LARGEST

    def expand(self, text: str, variables: Mapping[str, str], what: str) -> str:
        """`what`: describes the text, such as "args[2]". Raises Unsupported."""
        size = 0

        def value(found: re.Match[str]) -> str:
            nonlocal size
            new = "$" if found[0] == "$$" else variables.get(found[1], found[0])
            size += len(new)
            if size > LONGEST:
                raise self._too_long(what)
            return new

        closed = text.rfind(")") + 1  # there are no references beyond it, and searching an end for each "$(" would be slow
        return self.take(_REFERENCE.sub(value, text[:closed]) + text[closed:].replace("$$", "$"), what)

    def take(self, value: str, what: str) -> str:
        """Counts a value of another source. Raises Unsupported."""
        if len(value) > LONGEST:
            raise self._too_long(what)
        self._left -= len(value)
        if self._left < 0:
            raise Unsupported(
                f'container "{self._container}": with {what} its command, arguments and variables exceed '
                f"{LARGEST} characters, the limit of Linux"
            )
        return value

    def _too_long(self, what: str) -> Unsupported:
        return Unsupported(f'container "{self._container}": {what} exceeds {LONGEST} characters, the limit of Linux')


_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTNAME = 63
"""Maximum length of a host name, as in Kubernetes."""
_SHOWN = 100
"""Maximum length of a variable's name in messages."""


def surroundings(pod: Pod, home: str) -> dict[str, str]:
    """Variables of every process that references cannot use."""
    return {
        "PATH": os.environ.get("PATH", _DEFAULT_PATH),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": home,
        "TMPDIR": home,
        "PWD": home,
        "HOSTNAME": (pod.spec.hostname or pod.metadata.name)[:_HOSTNAME].rstrip("-."),
    }


def environment(
    pod: Pod,
    container: Container,
    addresses: Addresses,
    volumes: Mapping[str, str],
    expansion: Expansion,
    services: Mapping[str, str] = NO_VARIABLES,
) -> dict[str, str]:
    """Variables that commands and arguments can refer to. `volumes`: paths by name. `services`: variables of services. Raises
    Unsupported."""
    for name, text in services.items():
        expansion.take(f"{name}={text}", "the variables of services (see enableServiceLinks)")
    variables = {**services, "POD_IP": addresses.pod}
    for name, path in volumes.items():
        variables[f"PINNACE_VOLUME_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = path
    if container.envFrom:
        raise Unsupported(
            f'container "{container.name}": envFrom: the process runtime does not support config maps and secrets'
        )
    for variable in container.env:
        what = f'env "{variable.name:.{_SHOWN}}"'
        if not variable.HasField("valueFrom"):
            variables[variable.name] = expansion.expand(variable.value, variables, what)
        elif (value := _value(pod, container, variable, addresses)) is not None:
            variables[variable.name] = expansion.take(value, what)
    return variables


def _value(pod: Pod, container: Container, variable: EnvVar, addresses: Addresses) -> str | None:
    """The value of a valueFrom. None: an optional variable that is missing."""
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
            raise Unsupported(f"{where}: the process runtime does not support {key}")
    raise Unsupported(f"{where}: the process runtime does not support this valueFrom")


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
        raise Unsupported(f'{where}: fieldPath "{path}" is not supported')
    return simple[path]


def _resource(pod: Pod, container: Container, selector: ResourceFieldSelector, where: str) -> str:
    """A limit or request in units of the divisor, rounded up. A missing limit is 0, because a container has no share of the
    node.
    """
    named = selector.containerName or container.name
    containers = (*pod.spec.containers, *pod.spec.initContainers)
    owner = next((each for each in containers if each.name == named), None)
    kind, _, resource = selector.resource.partition(".")
    if owner is None or kind not in ("limits", "requests") or not resource:
        raise Unsupported(f'{where}: resource "{selector.resource}" of container "{named}" does not exist')
    try:
        found = getattr(owner.resources, kind).get(resource)
        amount = parse(found.string if found is not None else "0")
        divisor = parse(selector.divisor.string or "1") or parse("1")
    except QuantityError as error:
        raise Unsupported(f"{where}: {error}") from None
    return str(math.ceil(amount / divisor))


_MUST_BE = {"Directory": Path.is_dir, "File": Path.is_file, "Socket": Path.is_socket, "CharDevice": Path.is_char_device,
            "BlockDevice": Path.is_block_device}  # fmt: skip
"""The required file type of each hostPath type that does not create anything."""


def places(pod: Pod, folder: Path) -> dict[str, str]:
    """The path of each volume of the pod, by name. emptyDirs are in `folder`. Raises Unsupported."""
    return {volume.name: _place(volume, folder) for volume in pod.spec.volumes}


def _place(volume: Volume, folder: Path) -> str:
    source = volume.volumeSource
    if source.HasField("hostPath"):
        if not PurePosixPath(source.hostPath.path).is_absolute():
            raise Unsupported(f'volume "{volume.name}": hostPath "{source.hostPath.path}" is not an absolute path')
        return source.hostPath.path
    kinds = [field.name for field, _ in source.ListFields()]
    if kinds and kinds != ["emptyDir"]:
        raise Unsupported(f'volume "{volume.name}": the process runtime does not support {kinds[0]}')
    return str(folder / volume.name)


def make_volumes(pod: Pod, where: Mapping[str, str]) -> None:
    """Creates missing paths, and checks those that must exist. Raises Unsupported and OSError."""
    for volume in pod.spec.volumes:
        path, source = Path(where[volume.name]), volume.volumeSource
        kind = source.hostPath.type if source.HasField("hostPath") else "DirectoryOrCreate"
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch(exist_ok=True)
        elif kind and (kind not in _MUST_BE or not _MUST_BE[kind](path)):
            raise Unsupported(f'volume "{volume.name}": hostPath type check failed: {path} is not a {kind}')


def link_volumes(container: Container, root: Path, where: Mapping[str, str]) -> None:
    """Creates the root directory of a container. Raises Unsupported and OSError."""
    root.mkdir(parents=True, exist_ok=True)
    for mount in sorted(container.volumeMounts, key=lambda mount: mount.mountPath):
        if mount.name not in where:
            raise Unsupported(f'container "{container.name}": there is no volume "{mount.name}"')
        target, place = Path(where[mount.name]), inside(root, mount.mountPath)
        if mount.subPath:
            target /= _downwards(mount.subPath)
            target.mkdir(parents=True, exist_ok=True)
        if any(parent.is_symlink() for parent in place.parents if parent.is_relative_to(root)):
            raise Unsupported(f'container "{container.name}": mountPath "{mount.mountPath}" is inside another volume')
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(target)


def working_directory(container: Container, root: Path) -> str:
    """The root directory by default. workingDir can be below a mountPath, or a directory of the machine."""
    wanted = container.workingDir
    if not wanted:
        return str(root)
    mounted = (PurePosixPath(wanted).is_relative_to(mount.mountPath) for mount in container.volumeMounts)
    if not PurePosixPath(wanted).is_absolute() or any(mounted):
        return str(inside(root, wanted))
    return wanted


def inside(root: Path, path: str) -> Path:
    """The location of a container's path in its root directory."""
    return root / _downwards(path)


def _downwards(path: str) -> str:
    """The path without parts that lead out of the root directory."""
    return os.path.normpath(f"/{path}").lstrip("/")


LOG_BYTES = 10 << 20
LOG_FILES = 5
"""Maximum size and number of log files: the kubelet's containerLogMaxSize and containerLogMaxFiles."""
MESSAGE_PATH = "/dev/termination-log"
MESSAGE_BYTES = 4096
POD_MESSAGE_BYTES = 12 << 10
"""Maximum bytes of a termination message, and of all messages of a pod. The containers of a pod have equal shares."""


def container_plan(
    pod: Pod,
    container: Container,
    addresses: Addresses,
    root: Path,
    where: Mapping[str, str],
    services: Mapping[str, str] = NO_VARIABLES,
) -> Plan:
    """`root`: of the container; `where`: the volumes of the pod; `services`: variables of services. Raises Unsupported."""
    if not container.command:
        raise Unsupported(
            f'container "{container.name}": spec.containers[].command is required, because the '
            "process runtime does not pull images"
        )
    expansion = Expansion(container.name)
    variables = environment(pod, container, addresses, where, expansion, services)
    words = {"command": container.command, "args": container.args}
    message_path = str(inside(root, container.terminationMessagePath or MESSAGE_PATH))
    memory = container.resources.limits.get("memory")
    return Plan(
        argv=[
            expansion.expand(word, variables, f"{field}[{index}]")
            for field, each in words.items()
            for index, word in enumerate(each)
        ],
        env=surroundings(pod, str(root)) | {"PINNACE_TERMINATION_MESSAGE": message_path} | variables,
        cwd=working_directory(container, root),
        memory=amount("memory", memory.string) if memory is not None else None,
        log_bytes=LOG_BYTES,
        log_files=LOG_FILES,
        message_path=message_path,
        message_bytes=min(MESSAGE_BYTES, POD_MESSAGE_BYTES // (len(pod.spec.initContainers) + len(pod.spec.containers))),
        message_from_log=container.terminationMessagePolicy == "FallbackToLogsOnError",
    )


def instead(made: Plan, command: Sequence[str]) -> Plan:
    """The same environment for another command, whose arguments are not expanded."""
    return {**made, "argv": list(command)}
