"""One verb a file, loaded when it is used: the command of verb `x` is the attribute `x` of the module `x`."""
