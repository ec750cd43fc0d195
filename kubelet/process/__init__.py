"""The process runtime: containers as local processes (docs/process-runtime.md). `runtime` is the part that the kubelet sees.

    runtime ---- plan: a container's spec -> what to start ---- environment, expansion, volumes
       |
       +-- attempt: one run of a container, as it is in its folder <---- files ----> shim: the parent of the process
       +-- logs: what a shim has written (crilog), read again

    root.py       the folder of all pods; what is not kept is killed and removed; reset.py: all of it
    shims.py      shims as the kubelet sees them: started, found, told
    limits.py     what binds a process before it begins; launch.py: the same for a command of exec
    messages.py   termination messages, which the shim reads
    sessions.py   what is left of a process whose shim was killed
    calls.py      hooks and probes, each a task of its own; http.py: those by HTTP
    streams.py    logs and exec, for those who look on; command.py: one command, which ends when nobody does
    meter.py      what a container uses, with all that descends from its shim

What shims run is of the standard library only, and light: there is one for each container.
"""
