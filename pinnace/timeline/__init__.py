"""The timeline: elections, pods, nodes and faults of a cluster on one time axis, live or from a recording."""
