"""Leader election: candidates campaign on streams, and the key of an election in etcd decides which of them leads.

`candidates` is the state machine of one election, `history` the record of its terms, and `service` the gRPC service Elections.
"""
