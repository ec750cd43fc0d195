"""Flow control, after Kubernetes' API Priority and Fairness: each call waits for seats of its priority level and its user."""
