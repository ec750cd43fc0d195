"""Controllers: the loops that make the cluster what its objects say. Empty so far: node lifecycle and friends come here,
on `pinnace.client` (informers, election) alone."""
