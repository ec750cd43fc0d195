"""Types of custom objects for server-side apply: which lists and maps have one owner, and which have one for each item.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#custom-resources-and-server-side-apply
"""

from pinnace.api.schema import Type
from pinnace.apiextensions.schema import StructuralSchema


def type_of(schema: StructuralSchema) -> Type:
    """Return the type of whole objects of a schema, for `pinnace.api.structured_merge`."""
    raise NotImplementedError
