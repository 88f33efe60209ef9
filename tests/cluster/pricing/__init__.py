"""Tests of cluster.pricing."""
