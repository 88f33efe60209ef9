"""Tests of network."""
