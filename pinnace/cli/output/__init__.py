"""The output of objects: tables and the formats of `-o`. The output of `describe` is in pinnace.cli.describe."""
