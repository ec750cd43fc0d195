"""Built-in plugins of the scheduler. `pinnace.scheduler.plugins.registry` lists them."""
