"""A harmful scheduler plugin. It covers the ways in which a user's plugin can harm the process that runs it.

It belongs to a separate profile, so other pods are scheduled without it. An annotation of a pod with this profile selects the
action that the plugin executes each time the pod is scheduled:

    cancel          raises asyncio.CancelledError, as cancelled code does
    cancel-task     cancels the task that calls it if the task is accessible, and fails otherwise
    exit            raises SystemExit
    generator-exit  raises GeneratorExit
    hang            blocks for HANG seconds, longer than a leader may be silent
    leak            allocates memory until none is available, or up to a limit

Another annotation names a file that the plugin creates before the action, which signals the start of the fault.
"""

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

PROFILE = "saboteur"
"""The scheduler name of its pods."""
ACTION, REPORT = "chaos.pinnace.io/deed", "chaos.pinnace.io/report"
"""The annotations of its pods."""
HANG = 4.0
PIECE, MOST = 8 << 20, 256 << 20
"""The size of an allocation, and the total limit, in bytes. The limit protects the machine if memory is not limited."""
CONFIG = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: {PROFILE}
  plugins:
    multiPoint:
      enabled:
      - {{name: "{Path(__file__)}:Saboteur"}}
"""
"""The configuration of all schedulers in a chaos run. The plugin is loaded from its file like a user's plugin, because modules
of `pinnace` count as parts of the scheduler and are never interrupted."""


class Saboteur:
    name = "Saboteur"
    _kept: ClassVar[list[bytearray]] = []

    def pre_filter(self, state: dict[str, Any], pod: Any, nodes: Any) -> None:
        """Execute the pod's action in this process."""
        annotations = dict(pod.raw.metadata.annotations)
        if ACTION in annotations:
            with suppress(OSError):  # the file is needed once, and its directory is removed afterwards
                Path(annotations[REPORT]).touch()
            ACTIONS[annotations[ACTION]]()


def _cancel() -> None:
    raise asyncio.CancelledError


def _cancel_task() -> None:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("the calling task is not accessible")
    task.cancel()


def _exit_process() -> None:
    raise SystemExit(1)


def _generator_exit() -> None:
    raise GeneratorExit


def _hang_loop() -> None:
    select.select([], [], [], HANG)  # with libfaketime, time.sleep can raise EINVAL


def _leak_memory() -> None:
    while len(Saboteur._kept) * PIECE < MOST:
        Saboteur._kept.append(bytearray(PIECE))
    raise MemoryError


ACTIONS: dict[str, Callable[[], None]] = {
    "cancel": _cancel,
    "cancel-task": _cancel_task,
    "exit": _exit_process,
    "generator-exit": _generator_exit,
    "hang": _hang_loop,
    "leak": _leak_memory,
}
"""The actions by the value of the annotation."""
