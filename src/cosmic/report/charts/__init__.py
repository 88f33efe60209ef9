"""Charts as SVG (`plots`) and as text for a terminal (`terminal_plots`), both on `drawing`; nothing here knows of searches."""
