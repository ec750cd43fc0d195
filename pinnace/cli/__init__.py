"""The command-line client, `pinnace VERB`.

Each verb is a function in `verbs/`, declared with click and described in kubectl's terms. The module of a verb is imported when
the verb is used. `session.py` holds the connection and the deadline of a command; `errors.py` converts errors into messages and
exit codes.
"""
