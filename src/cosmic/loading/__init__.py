"""From what a user writes to complete designs: names resolved, defaults filled in, a mapping found that fits."""
