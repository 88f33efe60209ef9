"""Tests of cluster.pricing.builds."""
