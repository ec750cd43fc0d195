"""A scheduler plugin that does harm: everything that a user's plugin can do to the process that runs it.

It belongs to a profile of its own, so other pods are scheduled without it. An annotation of a pod of that profile says what the
plugin does each time that the pod is scheduled:

    cancel          raises asyncio.CancelledError, as cancelled code does
    cancel-task     cancels the task that calls it, if it can see it, and fails otherwise
    exit            raises SystemExit
    generator-exit  raises GeneratorExit
    hang            does not return for HANG seconds, longer than a leader may be silent
    leak            allocates memory until no more is available, or up to a limit

Another annotation names a file that the plugin creates first, to signal that the fault has begun.
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
"""Annotations of its pods."""
HANG = 4.0
PIECE, MOST = 8 << 20, 256 << 20
"""Bytes that are kept at a time, and in all: a process whose memory is not limited must not take the machine's."""
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
"""Of every scheduler of a chaos run. The plugin is named by its file, as one of a user's own: modules of `pinnace` are taken
for parts of the scheduler, which are never interrupted."""


class Saboteur:
    name = "Saboteur"
    _kept: ClassVar[list[bytearray]] = []

    def pre_filter(self, state: dict[str, Any], pod: Any, nodes: Any) -> None:
        """Does to this process as the pod says."""
        annotations = dict(pod.raw.metadata.annotations)
        if ACTION in annotations:
            with suppress(OSError):  # the file is wanted once, and its folder is gone afterwards
                Path(annotations[REPORT]).touch()
            ACTIONS[annotations[ACTION]]()


def _cancel() -> None:
    raise asyncio.CancelledError


def _cancel_task() -> None:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("the framework does not show the task that asks")
    task.cancel()


def _exit() -> None:
    raise SystemExit(1)


def _generator_exit() -> None:
    raise GeneratorExit


def _hang() -> None:
    select.select([], [], [], HANG)  # libfaketime makes time.sleep raise EINVAL while it steers a clock


def _leak() -> None:
    while len(Saboteur._kept) * PIECE < MOST:
        Saboteur._kept.append(bytearray(PIECE))
    raise MemoryError


ACTIONS: dict[str, Callable[[], None]] = {
    "cancel": _cancel,
    "cancel-task": _cancel_task,
    "exit": _exit,
    "generator-exit": _generator_exit,
    "hang": _hang,
    "leak": _leak,
}
"""By the value of the annotation."""
