"""What agents learn with: known points, the best ones, models of loss and feasibility, and earlier studies."""
