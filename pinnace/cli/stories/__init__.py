"""What is told of a cluster that is being broken: `demo` and `chaos`.

story.py                   chapters, moments, a verdict on the terminal
failover.py, node_loss.py  the acts of `demo`: each takes a cluster, tells what it does to it, and returns what is to be
                           thought of it
scenarios.py               the scenarios of `chaos` as commands
chaos_runs.py              the folder of a run of `chaos`, which goes when nothing in it is worth keeping
"""
