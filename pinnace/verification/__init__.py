"""Tools that prove what components promise: checkers of histories, chaos, benchmarks and labs. No component imports them."""
