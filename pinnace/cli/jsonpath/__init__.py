"""JSONPath in kubectl's dialect: templates, and what they find in the JSON of objects.

    template    text {.path} text {range .items[*]}{.metadata.name}{"\\n"}{end}
    path        .field  ['field']  ..  *  [n]  []  [a:b:step]  [a,b]  [?(@.x=="y")]     from the root, with or without $

As with kubectl a field that is not there finds nothing, and prints nothing; an index beyond the end of a list is an error.
Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/
"""

from pinnace.cli.jsonpath.parser import parse, parse_path
from pinnace.cli.jsonpath.paths import Path, text_of
from pinnace.cli.jsonpath.template import Template

__all__ = ["Path", "Template", "parse", "parse_path", "text_of"]
