"""Tests of design.loading."""
