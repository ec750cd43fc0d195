class ChaosError(Exception):
    """A run could not be made, or its tools failed: nothing is said about the cluster. One line for a person."""
