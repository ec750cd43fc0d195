"""Programs that others wrote, against a cluster with a gateway: kubectl and the official Python client (`make clients`)."""
