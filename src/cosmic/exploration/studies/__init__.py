"""Studies: searches kept on disk, resumed, replayed, examined, exported."""
