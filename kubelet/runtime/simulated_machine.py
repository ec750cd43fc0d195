"""What a command in a simulated container sees: its environment, its files and its processes, computed from the pod.

Kubelets do not read ConfigMaps and Secrets. Variables from them are missing, and files in volumes cannot be read; the messages
say so.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Container, EnvVar, Pod
from pinnace.api.pods import all_containers
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.downward import field_value, resource_value
from pinnace.kubelet.runtime.interface import ContainerView, UnsupportedPod

PROGRAM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_FOLDERS = ("/", "/bin", "/etc", "/home", "/proc", "/root", "/sbin", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/local",
            "/usr/local/bin", "/usr/sbin", "/var")  # fmt: skip
_HOSTNAME = 63
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z0-9_.-]+)\)")


class PodSnapshot(NamedTuple):
    """A pod of this kubelet at the time of a request."""

    pod: Pod
    containers: Sequence[ContainerView]
    addresses: PodAddresses

    def container(self, name: str) -> Container:
        """Empty if there is none."""
        return next((item for item in all_containers(self.pod.spec) if item.name == name), Container(name=name))

    def view(self, name: str) -> ContainerView | None:
        return next((container for container in self.containers if container.name == name), None)


class SimulatedFileError(Exception):
    """The path cannot be read. The message is that of a program, such as "No such file or directory"."""


class SimulatedMachine:
    """The environment of one container."""

    program_folders = PROGRAM_FOLDERS

    def __init__(self, snapshot: PodSnapshot, container: str, now: Callable[[], float]) -> None:
        """`now`: returns the Unix time."""
        self.now = now
        self.pod = snapshot.pod
        self.container = snapshot.container(container)
        self.addresses = snapshot.addresses
        spec = self.pod.spec
        self.hostname = (spec.nodeName if spec.hostNetwork else spec.hostname or self.pod.metadata.name)[:_HOSTNAME].rstrip(
            "-."
        )
        self.directory = posixpath.normpath(f"/{self.container.workingDir}") if self.container.workingDir else "/"
        self.missing_variables: list[str] = []
        """The variables whose ConfigMap or Secret is not read."""
        self.environment = self._container_environment()
        self._files = self._computed_files()
        self._mounts = {posixpath.normpath(mount.mountPath): mount.name for mount in self.container.volumeMounts}

    @property
    def user(self) -> int:
        """The user ID."""
        own, common = self.container.securityContext, self.pod.spec.securityContext
        return own.runAsUser if own.HasField("runAsUser") else common.runAsUser

    @property
    def group(self) -> int:
        own, common = self.container.securityContext, self.pod.spec.securityContext
        return own.runAsGroup if own.HasField("runAsGroup") else common.runAsGroup

    @property
    def main_command(self) -> str:
        """The command of the first process, as far as it is known."""
        return " ".join((*self.container.command, *self.container.args)) or self.container.image

    def _container_environment(self) -> Mapping[str, str]:
        path = ":".join(reversed(PROGRAM_FOLDERS))
        variables = {"PATH": path, "HOME": "/root", "HOSTNAME": self.hostname, "TERM": "xterm"}
        if self.container.envFrom:
            self.missing_variables.append("envFrom")
        for variable in self.container.env:
            value = self._variable_value(variable, variables)
            if value is None:
                self.missing_variables.append(variable.name)
            else:
                variables[variable.name] = value
        return variables

    def _variable_value(self, variable: EnvVar, variables: Mapping[str, str]) -> str | None:
        """None: the value is in an object that kubelets do not read."""
        if not variable.HasField("valueFrom"):
            return _REFERENCE.sub(lambda found: variables.get(found[1], found[0]) if found[1] else "$", variable.value)
        source = variable.valueFrom
        try:
            if source.HasField("fieldRef"):
                return field_value(self.pod, source.fieldRef, self.addresses, variable.name)
            if source.HasField("resourceFieldRef"):
                return resource_value(self.pod, self.container.name, source.resourceFieldRef, variable.name)
        except UnsupportedPod:
            return ""
        return None

    def _computed_files(self) -> Mapping[str, str]:
        spec, namespace = self.pod.spec, self.pod.metadata.namespace
        hosts = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
        hosts.append(f"{self.addresses.pod}\t{self.hostname}")
        hosts += [f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in spec.hostAliases]
        domain = "cluster.local"
        searches = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain, *spec.dnsConfig.searches]
        resolv = [f"search {' '.join(searches)}"]
        resolv += [f"nameserver {address}" for address in spec.dnsConfig.nameservers or ("10.96.0.10",)]
        resolv.append("options ndots:5")
        return {
            "/etc/hostname": f"{self.hostname}\n",
            "/etc/hosts": "".join(f"{line}\n" for line in hosts),
            "/etc/resolv.conf": "".join(f"{line}\n" for line in resolv),
            "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
            "/dev/null": "",
        }

    def resolve_path(self, path: str, directory: str) -> str:
        """The absolute path."""
        return posixpath.normpath(posixpath.join(directory, path)).replace("//", "/")

    def is_directory(self, path: str) -> bool:
        """`path`: absolute."""
        if path in self._files:
            return False
        prefix = path.rstrip("/") + "/"
        return path in _FOLDERS or any(f"{file}/".startswith(prefix) for file in (*self._files, *self._mounts))

    def is_file(self, path: str) -> bool:
        return path in self._files or self._is_shell(path)

    def read(self, path: str) -> str:
        """The content of a file. Raises SimulatedFileError."""
        if (text := self._files.get(path)) is not None:
            return text
        self._refuse_unreadable_volume(path)
        if self.is_directory(path):
            raise SimulatedFileError("Is a directory")
        if self._is_shell(path):
            raise SimulatedFileError("simulated programs have no content")
        raise SimulatedFileError("No such file or directory")

    def list(self, path: str) -> Sequence[str]:
        """The names in a directory. Raises SimulatedFileError."""
        self._refuse_unreadable_volume(path)
        if not self.is_directory(path):
            raise SimulatedFileError("No such file or directory")
        prefix = path.rstrip("/") + "/"
        paths = (*_FOLDERS, *self._files, *self._mounts)
        return sorted({item[len(prefix) :].partition("/")[0] for item in paths if item.startswith(prefix)} - {""})

    @staticmethod
    def _is_shell(path: str) -> bool:
        return path in ("/bin/sh", "/bin/bash")

    def _refuse_unreadable_volume(self, path: str) -> None:
        """Raises SimulatedFileError for a path in a volume that kubelets do not read."""
        for mount in self._parent_paths(path):
            if (name := self._mounts.get(mount)) is not None and (kind := self._kind_of_volume(name)) != "emptyDir":
                raise SimulatedFileError(f'simulated containers do not read the volume "{name}" ({kind})')

    @staticmethod
    def _parent_paths(path: str) -> Iterator[str]:
        while True:
            yield path
            if path == "/":
                return
            path = posixpath.dirname(path)

    def _kind_of_volume(self, name: str) -> str:
        source = next((volume.volumeSource for volume in self.pod.spec.volumes if volume.name == name), None)
        kinds = [field.name for field, _ in source.ListFields()] if source is not None else []
        return kinds[0] if kinds else "emptyDir"
