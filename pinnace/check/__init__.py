"""Checkers: what must hold, judged from a history of what happened. Pure: nothing here touches a cluster."""
