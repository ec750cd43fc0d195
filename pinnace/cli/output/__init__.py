"""What objects look like: tables, and what `-o` says. Texts of `describe` are in pinnace.cli.describe.

formats.py         what `-o` says
documents.py       yaml, json, name
templates.py       jsonpath, custom-columns
object_table.py    the table of one kind
sorting.py         `--sort-by` (pure)
showing.py         objects as they are now; following.py: for as long as they change
difference.py      what `diff` shows (pure)
contexts.py        the client's configuration (pure)
consumption.py     the tables of `top` (pure)
election_terms.py  the table of `leader history` (pure)
"""
