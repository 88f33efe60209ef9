"""Tests of accuracy."""
