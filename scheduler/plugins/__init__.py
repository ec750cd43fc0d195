"""Built-in plugins of the scheduler. Their list is in `scheduler.plugins.registry`."""
