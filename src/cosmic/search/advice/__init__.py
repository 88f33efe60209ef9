"""What bounds a design or a service, and what would help it most: actions first, then what could be bought."""
