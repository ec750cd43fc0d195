"""The client library: everything that speaks to API servers does so through it."""

import os

# gRPC's core writes to stderr, in the midst of a command's output, when a server goes away; calls say so anyway. It reads this
# when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
