"""Tests of search.provision."""
