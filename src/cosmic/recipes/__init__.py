"""Recipes: experiments written down, run again for nothing, and replayed by others."""
