"""Documents, and the tables of decisions."""
