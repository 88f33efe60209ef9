"""Formats of files that describe networks, link by link; `network_file.read_graph` reads any of them."""
