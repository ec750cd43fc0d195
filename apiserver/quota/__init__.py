"""Resource quotas: the objects of a namespace cannot use more than its quotas allow.

    create --admission--> are required requests and limits set? does the object fit, by the cache? (apiserver.admission.limits)
           --commit-----> namespace without quotas: the common committer
                     '--> namespace with quotas: a separate committer, which charges each group of writes (ledger):

                              one transaction: the objects, and status.used of each matching quota,
                              with a compare on the revision of the quota

    deleted or finished objects --> released by periodic recounts, and by a recount before a write is denied

At every revision of the storage, status.used is at least the actual usage, and no create increases it above spec.hard:

* An object and its charge are in one transaction. So a failure of a server never requires compensation. * A recount reads one
revision of the cache, which contains the quota and the objects at the same time. It is written only if the
  quota has not changed since this revision. So there was no other charge, and only deletions can be missing.
* A denial is based on a recount at a revision after the arrival of the request.

Not guaranteed: a server enforces a new quota after its cache has received it, within milliseconds. As in Kubernetes, an
increase without a create or resize is counted but not limited, for example when a pod changes scopes because a deadline is set.
Events are not counted.

`usage` computes the usage of an object and the limits of a quota without I/O. `ledger` reads quotas and objects from the watch
cache, charges writes, and recounts.

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/; for the design see docs/adr.
"""
