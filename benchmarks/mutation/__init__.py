"""Mutation testing of the physics: small changes of formulas that a test should notice."""
