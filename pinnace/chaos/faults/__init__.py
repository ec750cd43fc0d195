"""The faults that chaos injects, by area, and the table of their kinds."""
