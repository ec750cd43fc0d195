"""Leader election: candidates campaign on streams, and the election's key in etcd determines the leader.

`candidates` contains the state machine of an election, `history` the record of its terms, and `service` the gRPC service
Elections.
"""
