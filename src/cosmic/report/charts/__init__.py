"""Charts as SVG: `plots`, on `drawing`; nothing here knows of searches."""
