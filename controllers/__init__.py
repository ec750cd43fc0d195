"""The controllers: each compares what there is with what there should be, one object at a time, and writes the difference.

controller.py       what a controller is
registry.py         which there are: a new one is a line there
manager.py          all of them under an election: nothing is begun or sent after its end
main.py             their flags; entry.py: quiet about an interrupt until they run

replicasets/        as many pods as were asked for
deployments/        from one version of a template to the next
jobs/               pods that run until enough of them have succeeded
endpointslices/     where the pods of a service are reached
budgets/            how many pods may go because somebody wishes it
nodelifecycle/      nodes whose kubelet is gone, and the pods on them
podgc.py            pods that nobody ends any more
schedulernames.py   events about pods that name a scheduler which nothing runs
namespaces.py       namespaces that are being deleted: pods go first, then all else
garbage/            objects whose owners are gone

working.py          one controller at work for one term; a bug in a look at one object keeps no other from its own
workqueue.py        keys: each at most once, each with one worker, each with a back-off of its own
informers.py        what is heard, once for all of them; places.py: what pods and objects are indexed by
expectations.py     nobody looks at a cache that lacks his own last write
writes.py           many writes, in batches that a server takes

ownership.py        whose an object is (pure); claiming.py: adopting and releasing on the cluster
podcontrol.py       making and deleting the pods of an owner, many at once
podstates.py        what the status of a pod means to those who count (pure); podfacts.py: read once for each version
labelled.py         objects by their labels: a selector looks at each set of labels once
quotas.py           whom a quota may have refused is looked at when it grants more
amounts.py          a number, or a percentage of something (pure)
metrics.py          what is counted, under kube-controller-manager's names
"""
