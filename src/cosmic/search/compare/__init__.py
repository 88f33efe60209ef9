"""Two designs, or a design and a trace, beside each other: what differs, and what each difference is worth."""
