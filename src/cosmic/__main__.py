"""`python -m cosmic` is `cosmic`."""

from cosmic.cli.dispatch import main

main()
