"""Endpoint slices: where the pods of a service are reached.

    its pods --> endpoints, by address type and ports (endpoints.py) --> put into slices, few of them changed (slices.py)

Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""
