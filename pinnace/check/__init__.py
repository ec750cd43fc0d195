"""Invariants of a run, checked on its history (docs/checking.md): a history in, a report out.

history.py defines the records, index.py sorts them, check.py lists the invariants, and verdict.py reports them.
"""
