"""Who calls, what they may do, and what they did.

    certificate or token --authentication--> User --Authorizer: masters | node | RBAC--> allowed, or a refusal that says why

    user.py             who somebody is
    authentication.py   from what a caller shows to that; tokens.py: a file of tokens, read again when it has changed
    attributes.py       what somebody wants to do, and to what
    permissions.py      the permission that each method needs: no server starts without a row for each
    authorizer.py       may he? A denial that rests on a cache is thought over when that is up to date
    nodes.py            a fleet is confined to its own nodes, their leases and their pods
    rbac.py             what roles and bindings allow; scope.py: those of one namespace, or of everywhere
    held.py             who gives a rule away must hold it: asked without going through millions of things
    defaults.py         roles and bindings that every cluster has
    audit.py            a line for each object that somebody wrote, or was refused

Nobody here knows gRPC; policies are read from the watch cache. I/O are only the file of tokens, and the audit log.
"""
