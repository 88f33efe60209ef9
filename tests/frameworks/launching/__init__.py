"""Designs as others run them."""
