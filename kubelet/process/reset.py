"""Kills all that a process runtime has left in a folder, and removes it: `python -m kubelet.process.reset FOLDER`.

For when its kubelet has ended and no other is going to take it up (as `kubeadm reset`). Nothing, when there is no such folder.
"""

import sys
import time
from pathlib import Path

from kubelet.process.root import POLL, Root, kill
from pinnace.runtime.trees import remove_tree

PATIENCE = 10.0
"""Seconds in which the kubelet must have ended, and then everything must be dead."""


def reset(folder: Path) -> None:
    """Raises OSError: also when a kubelet has the folder, or something does not die."""
    if not folder.exists():
        return
    root = _taken(folder)
    pods = [*root.pods(), *root.removed()]
    deadline = time.monotonic() + PATIENCE
    while alive := [attempt for pod in pods for attempt in kill(pod)]:
        if time.monotonic() >= deadline:
            raise OSError(f"what runs in {alive[0]} does not end")
        time.sleep(POLL)
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
        reset(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))
