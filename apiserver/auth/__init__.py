"""Who calls, what they may do, and what they did.

    certificate or token --authentication--> User --Authorizer: masters | node | RBAC--> allowed, or a refusal that says why

Nobody here knows gRPC, or does I/O but for the audit log: policies are read from the watch cache.
"""
