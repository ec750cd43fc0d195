"""What fields objects have, and what they mean.

places.py       where a path such as pod.spec.containers leads
text.py         how that is told
"""
