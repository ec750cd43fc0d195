"""The texts of `describe`, as kubectl lays them out. Pure: objects and a time in, lines out."""
