"""The checks of `pinnace doctor` on a local cluster and this client. They change nothing, and each has a deadline."""
