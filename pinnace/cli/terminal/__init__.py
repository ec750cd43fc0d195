"""The standard streams, and what is drawn on a terminal. Knows nothing of objects.

console.py  results to stdout, everything else to stderr
table.py    columns that are aligned
live.py     text that is drawn in place, again and again
streams.py  the streams made fit for use: in UTF-8, and even if they are closed or full
stdin.py    reading while other things go on
"""
