"""What is: one frozen value per layer of the stack, and the design point that composes them."""
