"""Deployments: from one version of a template to the next, a few pods at a time.

    its replica sets: the one of the present template, and older ones (revisions.py)
        paused, or resized   --> all grow or shrink in proportion (scaling.py)
        Recreate             --> the old ones to nothing, then the new one (plan.py)
        RollingUpdate        --> the new one up, the old ones down (rolling.py)
    --> what is left of the history (revisions.py), conditions and status (status.py)

A rollout is undone by giving the deployment the template of an older replica set: that one is then the new one.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/, and pkg/controller/deployment of Kubernetes.
"""
