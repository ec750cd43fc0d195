"""The process runtime: containers as local processes (docs/process-runtime.md). `runtime` is the part that the kubelet sees.

    runtime ---- plan: a container's spec -> what to start ---- environment, expansion, volumes
       |
       +-- attempt: one run of a container, as it is in its folder <---- files ----> shim: the parent of the process
       +-- logs: what a shim has written (crilog), read again

What shims run is of the standard library only, and light: there is one for each container.
"""
