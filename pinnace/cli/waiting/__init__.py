"""`wait`: until objects are as wanted.

conditions.py  what `--for` says, and whether an object is there yet (pure)
until.py       following objects until all of them are
"""
