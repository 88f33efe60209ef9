"""Pages generated from the code, and pages whose commands are run: `docs/generate_reference.py` writes both."""
