"""The gRPC services. They translate messages into calls of the registry and the watch cache, and results into messages."""
