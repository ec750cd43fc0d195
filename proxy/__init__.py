"""The service proxy: forwards connections to the addresses of Services to their endpoints.

informers --> plan (pure) --> backend (userspace or nftables)
                  `---------> DNS records of cluster.local
"""
