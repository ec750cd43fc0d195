"""Utilities that every process needs. This package does not depend on the API.

Start with process.py (runs until a signal), supervise.py (retries an activity), tasks.py and clock.py. logs.py, tracing.py,
http.py, stalls.py and steps.py provide observability. tls.py and grpc_server.py configure servers.
"""
