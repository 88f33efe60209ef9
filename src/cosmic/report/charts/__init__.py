"""Charts as SVG and as text for a terminal; nothing here knows of searches.

`plots`, `category_charts` and `terminal_plots` draw on `scales` with the elements of `svg`.
"""
