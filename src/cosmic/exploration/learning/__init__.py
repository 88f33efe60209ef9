"""What agents learn with: memories of the best and of everything, models of loss and feasibility."""
