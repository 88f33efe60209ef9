"""Pages that are made from the code, and pages that are run: `docs/generate_reference.py` writes both."""
