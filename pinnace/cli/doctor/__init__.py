"""What a local cluster and this client need, and whether it is there. Nothing is changed; every check has a deadline.

examination.py    which checks there are
finding.py        what a check finds, and running several
machine.py        Python, packages, etcd, disk, memory, files, ports
configuration.py  the client's configuration, keys and certificates
servers.py        the API servers: are they there, of which version, at what time, and who leads
processes.py      those of a local cluster
"""
