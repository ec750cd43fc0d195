"""Kills all that a process runtime has left in a folder, and removes it: `python -m kubelet.process.reset [--keep] FOLDER`.

For a kubelet that has ended and that no other replaces (as `kubeadm reset`). With `--keep` the folder stays, and the next
kubelet finds containers that were killed, as after a restart of the machine. Without such a folder it does nothing. A folder
that no kubelet has made is refused.
"""

import sys
import time
from pathlib import Path

from kubelet.process.root import ENTRIES, POLL, Root, kill
from pinnace.runtime.files import remove_tree

PATIENCE = 10.0
"""Seconds in which the kubelet must have ended, and then everything must be dead."""


def reset(folder: Path, *, keep: bool = False) -> None:
    """Raises OSError: also when a kubelet has the folder, or something does not die."""
    if not folder.exists():
        return
    if foreign := {each.name for each in folder.iterdir()} - set(ENTRIES):
        raise OSError(f"{folder} is not the folder of a process runtime: it has {sorted(foreign)[0]}")
    root = _taken(folder)
    pods = [*root.pods(), *root.removed()]
    deadline = time.monotonic() + PATIENCE
    while alive := [attempt for pod in pods for attempt in kill(pod)]:
        if time.monotonic() >= deadline:
            raise OSError(f"what runs in {alive[0]} does not end")
        time.sleep(POLL)
    if not keep:
        remove_tree(folder)
    root.close()


def _taken(folder: Path) -> Root:
    """Its own, from now on."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Root(folder)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL)


if __name__ == "__main__":
    try:
        reset(Path(sys.argv[-1]), keep=sys.argv[1:-1] == ["--keep"])
    except OSError as error:
        sys.exit(str(error))
