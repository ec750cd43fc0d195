"""What every process needs: clock, backoff, supervised loops, logging, signals, health. Imports nothing else of pinnace."""
