"""What agents learn with: the best points, all points, and models of loss and feasibility."""
