"""Jobs: pods that are run until enough of them have succeeded, or too many failed.

    pods that have ended are counted (counting.py), by index where they have one (indexes.py)
        --> is the job done, failed, or late? (outcome.py) --> how many pods to make or delete (plan.py)

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/, and pkg/controller/job of Kubernetes. Not modelled:
backoffLimitPerIndex, podFailurePolicy, successPolicy, managedBy.
"""
