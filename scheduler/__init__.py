"""The scheduler: decides which node each pod runs on. The story of one pod is in cycle.py, the whole in scheduler.py."""
