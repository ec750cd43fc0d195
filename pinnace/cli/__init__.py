"""The command line: `pinnace VERB`.

verbs/       the commands: flags, help, examples. Related verbs share a module; only the module in use is imported
objects/     the objects that a command line names, and how they are fetched
output/      tables and the formats of `-o`;  describe/: the texts of `describe`;  jsonpath.py: templates and paths
local/       local clusters: which one, progress, errors
main.py      all verbs by name;  command.py: the classes of verbs;  settings.py: the global flags
session.py   the connection of one command, and its deadline
errors.py    how errors become text and exit codes (outcomes.py)
"""
