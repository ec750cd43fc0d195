"""Nodes whose kubelet is gone: found out, marked, and emptied.

    lease gone --grace--> Ready Unknown, NoSchedule --rate of the zone--> NoExecute --tolerationSeconds--> pods deleted
    (silence.py)          (conditions.py, taints.py)  (zones.py)                      (eviction.py)

Source: https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller
"""
