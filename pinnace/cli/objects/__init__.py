"""The objects that a command line selects, and their retrieval."""
