"""Breaking a cluster of real processes on purpose, and judging what became of it.

proxy.py       one connection between two processes, that misbehaves when told to
"""
