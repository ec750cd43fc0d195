"""The client library. All components and commands use it to call API servers.

Start with client.py and connection.py. informer.py follows a resource, election.py and standby.py elect a leader, heartbeat.py
renews the leases of nodes, and errors.py defines the exceptions.
"""

import os

# gRPC's core logs to stderr when a server closes a connection. The client library raises an error for the same event. gRPC
# reads this variable when it is imported for the first time.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
