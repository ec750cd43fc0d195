"""Checkers for the invariants of a run. They read the history of the run and report verdicts (docs/checking.md).

pinnace.history defines the records and the verdicts, index.py indexes them, check.py lists the invariants, and verdict.py
renders the report.
"""
