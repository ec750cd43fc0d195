"""What a pod means that does not say, as in Kubernetes (pkg/apis/core/v1/defaults.go): where more than one part has to know."""

SCHEDULER = "default-scheduler"
"""schedulerName."""
GRACE_SECONDS = 30
"""terminationGracePeriodSeconds."""
PROBE_PERIOD_SECONDS, PROBE_TIMEOUT_SECONDS = 10, 1
PROBE_SUCCESSES, PROBE_FAILURES = 1, 3
"""Thresholds: how many in a row."""
