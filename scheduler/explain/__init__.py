"""Why a pod is where it is, or nowhere: what `pinnace why` asks. Pure: a pod, a cache and a framework in, an Explanation out.

    survey      every filter's verdict on every node, every scorer's scores: the whole matrix, not only up to the first refusal
    remedies    the smallest change that would help: where one plugin alone refuses, that plugin's `advice`
    preempting  which pods of lower priority would have to go
    configured  which configuration is followed: the leader's, by the digest that it publishes, or one that may differ
    explain     puts it together, in the records of pinnace.api.records; case: what is asked

A decision is computed again by the very plugins that made it. What it cannot know is what the leader alone knows: pods that are
assumed and not bound yet, which of several nodes with the same score its hash would choose, and what extenders say.
"""

from scheduler.explain.explain import explain

__all__ = ["explain"]
