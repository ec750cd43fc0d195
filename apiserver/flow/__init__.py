"""Flow control, modeled on Kubernetes' API Priority and Fairness: a call waits for seats of its priority level and its user."""
