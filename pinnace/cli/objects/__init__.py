"""The objects that arguments name, and their completion."""
