"""Container runtimes: the interface, the fake runtime with its stages, and the process runtime (process/)."""
