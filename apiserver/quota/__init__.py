"""Resource quotas: nothing is created that makes the objects of a namespace use more than its quotas allow.

    create --admission--> must it say more? does it fit, as far as the cache knows? (apiserver.admission.limits)
           --Commits----> a namespace without quotas: to the committer, as ever
                     '--> one with: to a committer of its own, whose groups are charged as they leave (ledger):

                              one transaction: the objects, and status.used of each quota that they count against
                              under compare at the revision from which it was worked out

    gone, or finished ----> recounted now and then (recount), and before anybody is refused

So at every revision of the store status.used is at least what is there, and no create takes it beyond spec.hard:

* An object and its charge happen together or not at all, whoever dies and whichever answer is lost: there is nothing to give
  back.
* A count is of one revision of the cache, in which the quota and the objects are as they were at the same moment. It is written
  only if the quota is still the one of that revision: so nobody has charged it since, and what can have changed is that objects
  went away.
* A refusal rests on a count of a revision that etcd had after the request came.

What it does not promise: a server keeps a quota from the moment at which it has seen it, milliseconds after it was made. And
what grows without a create or a resize is counted but not charged, as in Kubernetes: a pod that changes scopes because it is
given a deadline. Events are not counted.

`usage` computes what an object uses and what a quota limits, without I/O. `ledger` reads quotas and objects from the watch
cache, charges writes, and recounts.

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/; for the design see docs/adr.
"""
