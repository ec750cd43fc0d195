"""The API: generated messages (from proto/), answers that are JSON, and pure helpers. Imports nothing else of pinnace."""
