"""Who calls, and what they may do.

    certificate or token --authentication--> User --Authorizer: masters | node | RBAC--> allowed, or a refusal that says why

Authentication and authorisation know no gRPC and do no I/O: policies are read from the watch cache.
"""
