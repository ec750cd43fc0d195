"""Local clusters of real processes.

cluster.py       Cluster: up, resume, status, kill, stop, restart, down
spec.py          size, the command line of each process, and the state that is stored (pure)
inputs.py        configuration files that are copied, and environment variables that are stored
folder.py        the folder of a cluster: lock, state, cleanup
processes.py     starting and stopping processes; free ports; processes whose state is lost
startup.py       waiting until a cluster is ready;  view.py: its status
etcd.py, certificates.py, errors.py
links.py         TCP proxies between processes, for fault injection
"""
