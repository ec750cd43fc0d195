"""The registry: reads and writes of all resources, with the strategy and the validation of each kind."""
