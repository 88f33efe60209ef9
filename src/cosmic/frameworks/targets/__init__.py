"""Targets, a module each: every one registers a function from a design to a `cosmic.frameworks.launch.Launch`.

The registry imports all modules of this package, so that it holds targets alone.
"""
