"""Tests of accuracy.suites."""
