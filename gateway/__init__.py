"""The gateway. It serves the Kubernetes API over HTTPS to kubectl and other Kubernetes clients.

    HTTPS --> server --> authentication --> dispatch --+--> discovery, openapi         documents that are generated once
                                                       +--> objects, subresources      one gRPC call to an API server
                                                       '--> watches, streams           one gRPC stream

A gateway has no state and no permissions of its own: it calls the API servers as the authenticated user (impersonation). Any
number of gateways can run in parallel.
"""
