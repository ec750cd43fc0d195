"""What every process needs to run. Nothing here knows the API.

Start with process.py (run until a signal), supervise.py (retry an activity), tasks.py and clock.py; logs.py, tracing.py,
http.py and stalls.py make a process observable; tls.py and grpc_server.py protect its servers.
"""
