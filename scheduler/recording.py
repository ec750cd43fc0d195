"""A recording of what the scheduler's decisions depend on, in the order in which this replica saw it.

A file of JSON lines. `pinnace.study.replay` repeats the decisions from it.

    {"start": NAME, "seed": N}                       a scheduler starts, with an empty cache
    {"objects": PLURAL, "deltas": [[KIND, BASE64]]}  changes that an informer delivered; BASE64 is the protobuf of the object
    {"attempt": UID, "node": NAME, "time": SECONDS}  a decision; the node is empty if the pod was not placed
    {"forget": UID}                                  an assumption ended without a bind

Each line is written by one call, so that a killed scheduler loses no line that it has finished. Attempts with extenders are
not recorded, because their answers cannot be repeated.
"""

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pinnace.client.informer import Delta


class InputRecording:
    """Appends to the file. Raise OSError if it cannot be written."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record_start(self, name: str, seed: int) -> None:
        self._write({"start": name, "seed": seed})

    def record_objects(self, resource: str, deltas: Sequence[Delta[Any]]) -> None:
        """Must be the first handler of an informer."""
        encoded = [[int(delta.kind), b64encode(delta.obj.SerializeToString()).decode()] for delta in deltas]
        self._write({"objects": resource, "deltas": encoded})

    def record_attempt(self, uid: str, node: str, time: float) -> None:
        """`time` is the Unix time."""
        self._write({"attempt": uid, "node": node, "time": time})

    def record_forgotten(self, uid: str) -> None:
        self._write({"forget": uid})

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
