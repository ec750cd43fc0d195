"""Code that the verbs of local clusters share."""
