"""The client library, through which all components and commands talk to API servers.

Start with client.py and connection.py; informer.py follows a resource, election.py and standby.py elect a leader, heartbeat.py
keeps nodes alive, and errors.py says what a call can raise.
"""

import os

# gRPC's core writes to stderr, in the midst of a command's output, when a server goes away; calls say so anyway. It reads this
# when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
