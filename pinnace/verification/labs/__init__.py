"""The labs of `labs/`: their texts, and the checks of `pinnace lab check`.

`document` parses the text of a lab. A module `labNN` contains the checks of a lab, one for each step that has one. Checks read
the cluster, not the terminal.
"""
