"""Attacks on a gateway: what callers without rights, readers and anonymous clients can send to it. wire.py is their client,
table.py lists the attacks, and attacker.py executes one of them in a process of its own."""
