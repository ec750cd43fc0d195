"""Volumes without mounts: directories of the machine, and where a container finds them.

A process has no mount namespace of its own here, so that a mountPath such as /data is nowhere. What a container gets instead is
a *root*: a folder of its own in which each mountPath is a symbolic link to the volume, and in which it is started.
`data/index.html` is the file in the volume, `/data/index.html` is a file of the machine. PINNACE_VOLUME_<NAME> has the volume's
whole path.

emptyDir and hostPath are what there is. readOnly, sizeLimit and medium mean nothing here.
Source: https://kubernetes.io/docs/concepts/storage/volumes/
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kubelet.runtime import Unsupported
from pinnace.api.core_v1_pb2 import Container, Pod, Volume

_MUST_BE = {"Directory": Path.is_dir, "File": Path.is_file, "Socket": Path.is_socket, "CharDevice": Path.is_char_device,
            "BlockDevice": Path.is_block_device}  # fmt: skip
"""What a hostPath of a type has to be; of those types that only look."""


def places(pod: Pod, folder: Path) -> dict[str, str]:
    """Where each volume of the pod is, by name; emptyDirs are in `folder`. Raises Unsupported."""
    return {volume.name: _place(volume, folder) for volume in pod.spec.volumes}


def _place(volume: Volume, folder: Path) -> str:
    source = volume.volumeSource
    if source.HasField("hostPath"):
        if not PurePosixPath(source.hostPath.path).is_absolute():
            raise Unsupported(f'volume "{volume.name}": hostPath "{source.hostPath.path}" is no absolute path')
        return source.hostPath.path
    kinds = [field.name for field, _ in source.ListFields()]
    if kinds and kinds != ["emptyDir"]:
        raise Unsupported(f'volume "{volume.name}": the process runtime has emptyDir and hostPath, and no {kinds[0]}')
    return str(folder / volume.name)


def make(pod: Pod, where: Mapping[str, str]) -> None:
    """Makes what is to be made, and looks at what must be there. Raises Unsupported, and OSError."""
    for volume in pod.spec.volumes:
        path, source = Path(where[volume.name]), volume.volumeSource
        kind = source.hostPath.type if source.HasField("hostPath") else "DirectoryOrCreate"
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch(exist_ok=True)
        elif kind and (kind not in _MUST_BE or not _MUST_BE[kind](path)):
            raise Unsupported(f'volume "{volume.name}": hostPath type check failed: {path} is not a {kind}')


def link(container: Container, root: Path, where: Mapping[str, str]) -> None:
    """Makes the root of a container. Raises Unsupported, and OSError."""
    root.mkdir(parents=True, exist_ok=True)
    for mount in sorted(container.volumeMounts, key=lambda mount: mount.mountPath):
        if mount.name not in where:
            raise Unsupported(f'container "{container.name}": there is no volume "{mount.name}"')
        target, place = Path(where[mount.name]), inside(root, mount.mountPath)
        if mount.subPath:
            target /= _downwards(mount.subPath)
            target.mkdir(parents=True, exist_ok=True)
        if any(parent.is_symlink() for parent in place.parents if parent.is_relative_to(root)):
            raise Unsupported(f'container "{container.name}": mountPath "{mount.mountPath}" is inside of another volume')
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(target)


def working_directory(container: Container, root: Path) -> str:
    """In the root, where nothing else is said; workingDir may be at a mountPath, or a directory of the machine."""
    wanted = container.workingDir
    if not wanted:
        return str(root)
    mounted = (PurePosixPath(wanted).is_relative_to(mount.mountPath) for mount in container.volumeMounts)
    if not PurePosixPath(wanted).is_absolute() or any(mounted):
        return str(inside(root, wanted))
    return wanted


def inside(root: Path, path: str) -> Path:
    """Where a path of the container is in its root."""
    return root / _downwards(path)


def _downwards(path: str) -> str:
    """The path without anything that leads out of where it begins."""
    return os.path.normpath(f"/{path}").lstrip("/")
