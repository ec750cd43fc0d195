"""Overload protection, after Kubernetes' API Priority and Fairness.

    call --classified--> a priority level, and in it a flow: one user's calls
           FlowControl --room--> at work, in a seat --> seat free
                 |                     ^
                 '--no room--> queue --'--> refused: full, or waited for too long; or gone: cancelled

Pure but for the futures that wait: time comes from a clock, what is counted goes to a meter, and nobody here knows gRPC.

Source: https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
"""
