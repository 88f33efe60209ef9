"""What ran, or is to run: Chakra execution traces."""
