"""What a shim is to start, from the spec of a container."""

from collections.abc import Sequence
from pathlib import Path

from kubelet.addresses import Addresses
from kubelet.process import volumes
from kubelet.process.environment import environment, surroundings
from kubelet.process.expansion import Expansion
from kubelet.process.files import Plan
from kubelet.runtime import Unsupported
from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.quantity import amount

LOG_BYTES = 10 << 20
LOG_FILES = 5
"""A container's log is at most so many files of so many bytes: the kubelet's containerLogMaxSize and containerLogMaxFiles."""
MESSAGE_PATH = "/dev/termination-log"
MESSAGE_BYTES = 4096
POD_MESSAGE_BYTES = 12 << 10
"""Bytes of a termination message, and of those of all containers of a pod, which have equal shares."""


def plan(pod: Pod, container: Container, addresses: Addresses, root: Path, where: dict[str, str]) -> Plan:
    """`root`: the container's; `where`: its pod's volumes. Raises Unsupported."""
    if not container.command:
        raise Unsupported(
            f'container "{container.name}": the process runtime runs spec.containers[].command, and there is none; images are '
            "not pulled, so nothing is known of what they would run"
        )
    expansion = Expansion(container.name)
    variables = environment(pod, container, addresses, where, expansion)
    words = {"command": container.command, "args": container.args}
    message_path = str(volumes.inside(root, container.terminationMessagePath or MESSAGE_PATH))
    memory = container.resources.limits.get("memory")
    return Plan(
        argv=[
            expansion.expand(word, variables, f"{field}[{index}]")
            for field, each in words.items()
            for index, word in enumerate(each)
        ],
        env=surroundings(pod, str(root)) | {"PINNACE_TERMINATION_MESSAGE": message_path} | variables,
        cwd=volumes.working_directory(container, root),
        memory=amount("memory", memory.string) if memory is not None else None,
        log_bytes=LOG_BYTES,
        log_files=LOG_FILES,
        message_path=message_path,
        message_bytes=min(MESSAGE_BYTES, POD_MESSAGE_BYTES // (len(pod.spec.initContainers) + len(pod.spec.containers))),
        message_from_log=container.terminationMessagePolicy == "FallbackToLogsOnError",
    )


def instead(made: Plan, command: Sequence[str]) -> Plan:
    """The same place, for another command: as given, nothing is replaced in it."""
    return {**made, "argv": list(command)}
