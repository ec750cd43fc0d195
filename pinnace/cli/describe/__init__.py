"""The text of `describe` for each kind of object, in kubectl's layout."""
