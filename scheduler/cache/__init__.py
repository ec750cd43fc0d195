"""What the scheduler knows of the cluster: nodes as a table, and the pods that use them. Pure: no clock, no I/O."""
