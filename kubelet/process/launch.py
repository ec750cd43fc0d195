"""Becomes the command of an exec: in the place of a container, and bound as it is. Of the standard library only.

Arguments: a descriptor from which the plan is read (kubelet.process.files.Plan), and the pid of the kubelet.
"""

import json
import os
import sys

from kubelet.process import limits

NOT_FOUND, NOT_EXECUTABLE = 127, 126


def main() -> None:
    with os.fdopen(int(sys.argv[1])) as file:
        plan = json.load(file)
    limits.bind(plan["memory"], int(sys.argv[2]))
    command = plan["argv"]
    try:
        os.chdir(plan["cwd"])
        os.execvpe(command[0], command, plan["env"])
    except (OSError, ValueError) as error:  # ValueError: of a null character
        print(f"cannot run {command[0]}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main()
