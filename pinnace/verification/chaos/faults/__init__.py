"""The faults of chaos runs by area, and the table of their kinds."""
