"""Tests of design."""
