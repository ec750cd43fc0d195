"""The gRPC services. They convert messages to calls of the registry and the watch cache, and convert the results to
messages."""
