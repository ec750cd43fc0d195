"""Scheduling studies: traces x profiles x seeds on the scheduler's own decisions, queue and preemption, in virtual time.

trace.py          nodes and tasks: readers of openb and of our CSV, the generator, inflation
simulation.py     the driver: it moves virtual time and delivers events; the scheduler decides
recording.py      what a run records: decisions, samples, metrics
fragmentation.py  GPU fragmentation, for the metric and for the policy FGD
plan.py           the study file: traces, profiles, seeds
execution.py      runs in several processes, resumable
report.py         statistics, CSV, plots, HTML
policies/         score plugins for GPU clusters

docs/studies.md is the guide.
"""
