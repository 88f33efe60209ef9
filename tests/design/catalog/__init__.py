"""Tests of design.catalog."""
