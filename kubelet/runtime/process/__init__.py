"""The process runtime: containers are local processes (docs/process-runtime.md). The kubelet uses `runtime` only.

    runtime.py    pods and containers; takes up what an earlier kubelet left
    plan.py       from a container's spec to the command, environment and directories
    root.py       the directory of all pods; starts, finds and stops shims
    shim.py       the parent of one container's process: writes its log, reports its exit
    files.py      the files through which the kubelet and a shim communicate
    handlers.py   lifecycle hooks and probes
    streams.py    logs and exec
    launch.py     resource limits, and the program that becomes the command of an exec

Shims and `launch` use the standard library only: one process of each runs per container.
"""
