"""The gateway: the Kubernetes API over HTTPS, for kubectl and every other client of Kubernetes.

    HTTPS --> server --> authentication --> dispatch --+--> discovery, openapi         documents made at the start
                                                       +--> objects, subresources      one gRPC call to an API server
                                                       '--> watches, streams           one gRPC stream

A gateway has no state and no rights of its own: it calls the API servers as the user that it has authenticated
(impersonation). Any number of gateways may run.
"""
