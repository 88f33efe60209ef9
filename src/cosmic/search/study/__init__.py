"""Studies: searches kept on disk, resumed, replayed, compared, examined and exported; measured runs beside them."""
