"""Collectives that are made to measure: lower bounds on any network, and schedules that come near them."""
