"""`python -m cosmic` is `cosmic`."""

from cosmic.cli import main

main()
