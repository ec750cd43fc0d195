"""Leader election: candidates campaign on streams, and the election's key in etcd determines the leader.

`campaign` contains the state machine of a campaign, `candidate_queue` the order of the candidates of a server, `leader_key` the
key in etcd, `history` the record of the terms, and `service` the gRPC service Elections.
"""
