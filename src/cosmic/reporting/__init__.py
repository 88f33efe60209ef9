"""Pages that show numbers: charts as SVG, pages as Markdown or HTML, plots for a terminal. It knows no searches."""
