"""Disruption budgets: how many of their pods are healthy, and how many may go because somebody wishes it.

The other half is the Evict verb, which takes disruptions from the status that is kept here. Both compare the budget's version:
an eviction that this count has not seen makes it fail, and begin anew.

Source: https://kubernetes.io/docs/tasks/run-application/configure-pdb/, and pkg/controller/disruption of Kubernetes.
"""
