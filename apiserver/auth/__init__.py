"""Who calls, what they may do, and what they did.

    certificate or token --authentication--> User --Authorizer: masters | node | RBAC--> allowed, or a refusal that says why

Nobody here knows gRPC; policies are read from the watch cache. I/O are only the file of tokens, and the audit log.
"""
