"""The command line: `pinnace VERB`. One verb a file in `pinnace.cli.verbs`; `pinnace.cli.main` loads only the one that is used.

What all verbs share: flags (`command`), the connection and its deadline (`session`), how failures are told (`errors`), how
objects are named (`targets`) and printed (`forms`, `table`, `describe`, pinnace.printers).
"""
