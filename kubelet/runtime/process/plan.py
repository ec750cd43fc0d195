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
References can grow exponentially, so the total size is limited to what Linux accepts (`VariableExpansion`). Fields and
resources are Kubernetes' downward API.

Volumes: a process has no mount namespace, so a mountPath such as /data cannot exist. Each container has a root directory in
which every mountPath is a symbolic link to the volume, and starts there: `data/index.html` is in the volume,
`/data/index.html` is a file of the machine. emptyDir and hostPath are supported; readOnly, sizeLimit and medium are ignored.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/,
https://kubernetes.io/docs/concepts/workloads/pods/downward-api/, https://kubernetes.io/docs/concepts/storage/volumes/
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from pinnace.api.core_v1_pb2 import Container, EnvVar, Pod, Volume, VolumeMount
from pinnace.api.quantity import amount
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.downward import field_value, resource_value
from pinnace.kubelet.runtime.interface import UnsupportedPod
from pinnace.kubelet.runtime.process import files
from pinnace.kubelet.runtime.process.files import BindMount, ProcessPlan
from pinnace.kubelet.runtime.process.host_names import short_host_name
from pinnace.kubelet.runtime.process.images import ImageProgram, ImageTable, container_command
from pinnace.kubelet.runtime.process.objects import (
    NO_OBJECTS,
    Objects,
    claim_path,
    is_written_by_volume_files,
    object_value,
    variables_of_env_from,
)

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
LONGEST = 128 << 10
"""Maximum length of an argument or variable: MAX_ARG_STRLEN, see execve(2)."""
NO_IMAGES = ImageTable()
"""The built-in images only."""
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
LARGEST = 2 << 20
"""Maximum length of all arguments and variables: a quarter of the default stack limit of 8 MiB."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHOWN = 100
"""Maximum length of a variable's name in messages."""
_MUST_BE = {"Directory": Path.is_dir, "File": Path.is_file, "Socket": Path.is_socket, "CharDevice": Path.is_char_device,
            "BlockDevice": Path.is_block_device}  # fmt: skip
"""The required file type of each hostPath type that does not create anything."""
_MOUNTED = ("emptyDir", "hostPath", "configMap", "secret", "projected", "downwardAPI", "persistentVolumeClaim")
"""The supported kinds of volumes."""
KUBECONFIG = "KUBECONFIG"
CREDENTIALS_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where clients in a pod look for their credentials."""
LOG_BYTES = 10 << 20
LOG_FILES = 5
"""Maximum size and number of log files: the kubelet's containerLogMaxSize and containerLogMaxFiles."""
MESSAGE_PATH = "/dev/termination-log"
MESSAGE_BYTES = 4096
POD_MESSAGE_BYTES = 12 << 10
"""Maximum bytes of a termination message, and of all messages of a pod. The containers of a pod have equal shares."""


class VariableExpansion:
    """The expansions of one container. Replaced variables count, too."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._left = LARGEST

    def expand(self, text: str, variables: Mapping[str, str], what: str) -> str:
        """`what`: describes the text, such as "args[2]". Raises UnsupportedPod."""
        size = 0

        def value(found: re.Match[str]) -> str:
            nonlocal size
            new = "$" if found[0] == "$$" else variables.get(found[1], found[0])
            size += len(new)
            if size > LONGEST:
                raise self._too_long(what)
            return new

        closed = text.rfind(")") + 1  # there are no references beyond it, and searching an end for each "$(" would be slow
        return self.check_length(_REFERENCE.sub(value, text[:closed]) + text[closed:].replace("$$", "$"), what)

    def check_length(self, value: str, what: str) -> str:
        """Count a value of another source. Raises UnsupportedPod."""
        if len(value) > LONGEST:
            raise self._too_long(what)
        self._left -= len(value)
        if self._left < 0:
            raise UnsupportedPod(
                f'container "{self._container}": with {what} its command, arguments and variables exceed '
                f"{LARGEST} characters, the limit of Linux"
            )
        return value

    def _too_long(self, what: str) -> UnsupportedPod:
        return UnsupportedPod(f'container "{self._container}": {what} exceeds {LONGEST} characters, the limit of Linux')


def base_environment(pod: Pod, home: str) -> dict[str, str]:
    """Variables of every process that references cannot use."""
    return {
        "PATH": os.environ.get("PATH", _DEFAULT_PATH),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": home,
        "TMPDIR": home,
        "PWD": home,
        "PINNACE_ROOT": home,
        "HOSTNAME": short_host_name(pod),
    }


def container_environment(
    pod: Pod,
    container: Container,
    addresses: PodAddresses,
    volumes: Mapping[str, str],
    expansion: VariableExpansion,
    services: Mapping[str, str] = NO_VARIABLES,
    objects: Objects | None = NO_OBJECTS,
    image: ImageProgram | None = None,
) -> dict[str, str]:
    """Variables that commands and arguments can refer to. `volumes`: paths by name. `services`: variables of services.
    `objects`: None if they are not known yet; then their variables are missing. Raises UnsupportedPod and MissingObject.
    """
    for name, text in services.items():
        expansion.check_length(f"{name}={text}", "the variables of services (see enableServiceLinks)")
    variables = {**(image.env if image is not None else {}), **services, "POD_IP": addresses.pod}
    for name, path in volumes.items():
        variables[f"PINNACE_VOLUME_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = path
    if objects is not None:
        for name, text in variables_of_env_from(container, objects).items():
            variables[name] = expansion.check_length(text, f'the variable "{name:.{_SHOWN}}" of envFrom')
    for variable in container.env:
        what = f'env "{variable.name:.{_SHOWN}}"'
        if not variable.HasField("valueFrom"):
            variables[variable.name] = expansion.expand(variable.value, variables, what)
        elif (value := _variable_value(pod, container, variable, addresses, objects)) is not None:
            variables[variable.name] = expansion.check_length(value, what)
    return variables


def _variable_value(
    pod: Pod, container: Container, variable: EnvVar, addresses: PodAddresses, objects: Objects | None
) -> str | None:
    """The value of a valueFrom. None: an optional variable that is missing, or one of an object that is not known yet."""
    source = variable.valueFrom
    where = f'container "{container.name}": env "{variable.name}"'
    if source.HasField("fieldRef"):
        return field_value(pod, source.fieldRef, addresses, where)
    if source.HasField("resourceFieldRef"):
        return resource_value(pod, container.name, source.resourceFieldRef, where)
    if source.HasField("configMapKeyRef") or source.HasField("secretKeyRef"):
        return object_value(source, objects, pod.metadata.namespace) if objects is not None else None
    raise UnsupportedPod(f"{where}: the process runtime does not support this valueFrom")


def volume_paths(pod: Pod, folder: Path, objects: Objects | None = None) -> dict[str, str]:
    """The path of each volume of the pod, by name. Volumes of the pod itself are in `folder`. Claims are missing if `objects`
    is None. Raises UnsupportedPod and MissingObject.
    """
    result = {}
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        if not source.HasField("persistentVolumeClaim"):
            result[volume.name] = _volume_path(volume, folder)
        elif objects is not None:
            result[volume.name] = claim_path(objects, source.persistentVolumeClaim.claimName).path
    return result


def _volume_path(volume: Volume, folder: Path) -> str:
    source = volume.volumeSource
    if source.HasField("hostPath"):
        if not PurePosixPath(source.hostPath.path).is_absolute():
            raise UnsupportedPod(f'volume "{volume.name}": hostPath "{source.hostPath.path}" is not an absolute path')
        return source.hostPath.path
    return str(folder / volume.name)


def unsupported_volume(volume: Volume) -> str:
    """The kind of a volume that cannot be mounted; otherwise empty."""
    kinds = [field.name for field, _ in volume.volumeSource.ListFields()]
    return kinds[0] if kinds and kinds[0] not in _MOUNTED else ""


def read_only_volumes(pod: Pod) -> frozenset[str]:
    """The names of volumes that no container may change, whatever its mount says: those of ConfigMaps, Secrets and the downward
    API, which the kubelet writes, and claims that the pod uses read-only.
    """
    return frozenset(
        volume.name
        for volume in pod.spec.volumes
        if is_written_by_volume_files(volume) or volume.volumeSource.persistentVolumeClaim.readOnly
    )


def make_volumes(pod: Pod, where: Mapping[str, str], objects: Objects | None = None) -> None:
    """Create missing paths, and check those that must exist. Claims only if `objects` is given. Raises UnsupportedPod,
    MissingObject and OSError.
    """
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        kind = source.hostPath.type if source.HasField("hostPath") else "DirectoryOrCreate"
        if source.HasField("persistentVolumeClaim"):
            if objects is None:
                continue
            kind = claim_path(objects, source.persistentVolumeClaim.claimName).type
        path = Path(where[volume.name])
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch(exist_ok=True)
        elif kind and (kind not in _MUST_BE or not _MUST_BE[kind](path)):
            raise UnsupportedPod(f'volume "{volume.name}": hostPath type check failed: {path} is not a {kind}')


def link_volumes(
    container: Container, root: Path, where: Mapping[str, str], variables: Mapping[str, str] | None = None
) -> list[BindMount]:
    """Create the root directory of a container, with the links. Return the same as mounts. Volumes that are missing in
    `where`, and parts of volumes (subPath) if `variables` is None, are left out: they exist when the container starts.
    `variables`: those of the container, for subPathExpr. Raises UnsupportedPod and OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    mounts = []
    for mount in sorted(container.volumeMounts, key=lambda mount: mount.mountPath):
        place = path_in_root(root, mount.mountPath)
        if any(parent.is_symlink() for parent in place.parents if parent.is_relative_to(root)):
            raise UnsupportedPod(f'container "{container.name}": mountPath "{mount.mountPath}" is inside another volume')
        if mount.name not in where:
            if variables is not None:
                raise UnsupportedPod(f'container "{container.name}": there is no volume "{mount.name}"')
            continue
        target = Path(where[mount.name])
        if mount.subPath or mount.subPathExpr:
            if variables is None:
                continue
            target = make_sub_path(target, _volume_sub_path(container, mount, variables), container.name, mount.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(target)
        elif place.readlink() != target:  # the claim is bound to another volume, or a variable has changed
            place.unlink()
            place.symlink_to(target)
        mounts.append(BindMount(source=str(target), target=mount.mountPath, read_only=mount.readOnly))
    return mounts


def _volume_sub_path(container: Container, mount: VolumeMount, variables: Mapping[str, str]) -> str:
    """Raises UnsupportedPod."""
    if not mount.subPathExpr:
        return mount.subPath
    missing = [name for name in _REFERENCE.findall(mount.subPathExpr) if name and name not in variables]
    if missing:
        raise UnsupportedPod(
            f'container "{container.name}": subPathExpr of "{mount.mountPath}": missing value for "{missing[0]}"'
        )
    return VariableExpansion(container.name).expand(mount.subPathExpr, variables, "subPathExpr")


def make_sub_path(volume: Path, part: str, container: str, name: str) -> Path:
    """A path inside a volume; missing directories are created. Symbolic links inside the volume must not lead out of it: the
    container could have made them. Raises UnsupportedPod and OSError.
    """
    wrong = f'failed to prepare subPath for volumeMount "{name}" of container "{container}"'
    pieces = [piece for piece in part.split("/") if piece not in ("", ".")]
    if ".." in pieces or part.startswith("/"):
        raise UnsupportedPod(f'{wrong}: subPath "{part:.100}" must be relative and must not contain ".."')
    base = Path(os.path.realpath(volume))
    here = base
    for piece in pieces:
        here = here / piece
        real = Path(os.path.realpath(here))
        if not real.is_relative_to(base):
            raise UnsupportedPod(f'{wrong}: subPath "{part:.100}" leads out of the volume through a symbolic link')
        if not here.exists():
            here.mkdir(mode=0o750)
    return volume.joinpath(*pieces)


def working_directory(container: Container, root: Path) -> str:
    """The root directory by default. workingDir can be below a mountPath, or a directory of the machine."""
    wanted = container.workingDir
    if not wanted:
        return str(root)
    mounted = (PurePosixPath(wanted).is_relative_to(mount.mountPath) for mount in container.volumeMounts)
    if not PurePosixPath(wanted).is_absolute() or any(mounted):
        return str(path_in_root(root, wanted))
    return wanted


def path_in_root(root: Path, path: str) -> Path:
    """The location of a container's path in its root directory."""
    return root / _without_parent_parts(path)


def _without_parent_parts(path: str) -> str:
    """The path without parts that lead out of the root directory."""
    return os.path.normpath(f"/{path}").lstrip("/")


def credentials_kubeconfig(volume: str, environment: Mapping[str, str], namespace: str) -> str:
    """Return a kubeconfig with the credentials of a pod. `volume`: the path of their volume. `environment`: of the container.
    Return "" if the pod has no credentials, or the address of the API is unknown."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not volume or not host or not port:
        return ""
    cluster = {"server": f"https://{f'[{host}]' if ':' in host else host}:{port}", "certificate-authority": f"{volume}/ca.crt"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "pod", "user": {"tokenFile": f"{volume}/token"}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "pod", "namespace": namespace}}],
        "current-context": "pod",
    }
    return json.dumps(document, indent=1)  # JSON is YAML


def build_process_plan(
    pod: Pod,
    container: Container,
    addresses: PodAddresses,
    root: Path,
    where: Mapping[str, str],
    services: Mapping[str, str] = NO_VARIABLES,
    objects: Objects | None = NO_OBJECTS,
    images: ImageTable = NO_IMAGES,
) -> ProcessPlan:
    """`root`: of the container; `where`: the volumes of the pod; `services`: variables of services; `objects`: see
    `container_environment`. Raises UnsupportedPod and MissingObject.
    """
    image = images.find_image(container.image)
    command, args = container_command(container, image)
    if not command and not args:
        raise UnsupportedPod(
            f'container "{container.name}": image "{container.image}" is not in the table of images, and the '
            "container has no command: set one, or name the image in the file of --images"
        )
    expansion = VariableExpansion(container.name)
    variables = container_environment(pod, container, addresses, where, expansion, services, objects, image)
    message_path = str(path_in_root(root, container.terminationMessagePath or MESSAGE_PATH))
    memory = container.resources.limits.get("memory")
    return ProcessPlan(
        argv=[
            expansion.expand(word, variables, f"{field}[{index}]") if given else word
            for field, each, given in (
                ("command", command, bool(container.command)),
                ("args", args, bool(container.command or container.args)),
            )
            for index, word in enumerate(each)
        ],
        env=base_environment(pod, str(root)) | {"PINNACE_TERMINATION_MESSAGE": message_path} | variables,
        cwd=working_directory(container, root),
        memory=amount("memory", memory.string) if memory is not None else None,
        log_bytes=LOG_BYTES,
        log_files=LOG_FILES,
        message_path=message_path,
        message_bytes=min(MESSAGE_BYTES, POD_MESSAGE_BYTES // (len(pod.spec.initContainers) + len(pod.spec.containers))),
        message_from_log=container.terminationMessagePolicy == "FallbackToLogsOnError",
        mounts=[],
    )


def with_command(made: ProcessPlan, command: Sequence[str]) -> ProcessPlan:
    """The same environment for another command, whose arguments are not expanded."""
    return {**made, "argv": list(command)}


def read_running_plan(attempt: Path) -> ProcessPlan:
    """The plan of a running attempt, for commands in its container."""
    made: ProcessPlan = files.read_record(str(attempt / files.PLAN))
    running = files.read_record(str(attempt / files.RUNNING)) if made.get("mounts") else None
    return {**made, "enter": running["pid"]} if running is not None else made
