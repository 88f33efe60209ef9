"""Tests of network.costs."""
