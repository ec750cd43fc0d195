"""The acts of `pinnace demo`: each takes a cluster, tells what it does to it, and returns what is to be thought of it."""
