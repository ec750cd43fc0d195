"""The command line, `pinnace VERB`.

The verbs of Kubernetes are handed to the real kubectl: table.py says which they are, entry.py decides, kubectl.py becomes
kubectl. Each of our verbs is a function in `verbs/`, declared with click. The module of a verb is imported when the verb is
used. `session.py` holds the connection and the deadline of a command; `errors.py` converts errors into messages and exit codes.
"""
