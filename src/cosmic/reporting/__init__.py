"""Charts as SVG, pages as Markdown or HTML, plots for a terminal. Nothing here knows of searches."""
