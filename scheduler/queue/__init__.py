"""Which pod is next, and which must wait. Pure: the time is passed in, in monotonic seconds."""
