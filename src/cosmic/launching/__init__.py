"""From designs to launches: the arguments, files and environment with which other software runs a mapping."""
