"""Built-in plugins of the scheduler. `scheduler.plugins.registry` lists them."""
