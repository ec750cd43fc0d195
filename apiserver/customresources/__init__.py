"""Custom resources: the kinds that definitions add at run time, on every API server."""
