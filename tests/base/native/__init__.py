"""Tests of base.native."""
