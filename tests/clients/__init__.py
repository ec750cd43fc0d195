"""kubectl, client libraries and an operator against a cluster with a gateway (`make clients`)."""
