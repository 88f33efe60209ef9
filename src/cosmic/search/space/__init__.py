"""Parameter sets: what may vary around a base design; its constraints, counting, sampling and files."""
