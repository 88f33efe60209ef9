"""Search: agents that look for the best design of a parameter set, and the studies that keep what they found."""
