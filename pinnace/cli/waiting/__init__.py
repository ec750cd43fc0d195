"""Waiting until objects are as wanted.

conditions.py  what `wait --for` says, and whether an object is there yet (pure)
until.py       until all objects meant are so
gone.py        until they are gone, whoever asked for that
patience.py    how long that may take
"""
