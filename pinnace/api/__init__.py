"""The API: generated messages (from proto/) and pure helpers around them. Imports nothing else of pinnace."""
