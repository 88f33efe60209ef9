"""What it costs: seconds, bytes, dollars and watts, as pure functions."""
