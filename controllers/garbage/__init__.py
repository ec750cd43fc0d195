"""Objects whose owners are gone, and owners that wait for their dependents.

Source: https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""
