"""Pages of text, tables and charts of one's own, written as Markdown with SVG, as the case studies are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.report.charts.category_charts import Bar, BarGroup, LineAcross, bars, heat_map, stacked_bars
    from cosmic.report.charts.plots import Mark, lines, scatter
    from cosmic.report.charts.scales import Axis, Point, Series, quantity
    from cosmic.report.markdown import table as markdown_table
    from cosmic.report.page import Code, Figure, Heading, Items, Page, Part, Table, Text, to_html, to_markdown
    from cosmic.report.sizing_report import PAGE_COLUMNS as SIZING_COLUMNS
    from cosmic.report.sizing_report import row_cells as sizing_cells
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Axis": "cosmic.report.charts.scales",
            "Bar": "cosmic.report.charts.category_charts",
            "BarGroup": "cosmic.report.charts.category_charts",
            "Code": "cosmic.report.page",
            "Figure": "cosmic.report.page",
            "Heading": "cosmic.report.page",
            "Items": "cosmic.report.page",
            "LineAcross": "cosmic.report.charts.category_charts",
            "Mark": "cosmic.report.charts.plots",
            "Page": "cosmic.report.page",
            "Part": "cosmic.report.page",
            "Point": "cosmic.report.charts.scales",
            "SIZING_COLUMNS": "cosmic.report.sizing_report:PAGE_COLUMNS",
            "Series": "cosmic.report.charts.scales",
            "Table": "cosmic.report.page",
            "Text": "cosmic.report.page",
            "bars": "cosmic.report.charts.category_charts",
            "heat_map": "cosmic.report.charts.category_charts",
            "lines": "cosmic.report.charts.plots",
            "markdown_table": "cosmic.report.markdown:table",
            "quantity": "cosmic.report.charts.scales",
            "scatter": "cosmic.report.charts.plots",
            "sizing_cells": "cosmic.report.sizing_report:row_cells",
            "stacked_bars": "cosmic.report.charts.category_charts",
            "to_html": "cosmic.report.page",
            "to_markdown": "cosmic.report.page",
        },
    )

__all__ = [
    "SIZING_COLUMNS",
    "Axis",
    "Bar",
    "BarGroup",
    "Code",
    "Figure",
    "Heading",
    "Items",
    "LineAcross",
    "Mark",
    "Page",
    "Part",
    "Point",
    "Series",
    "Table",
    "Text",
    "bars",
    "heat_map",
    "lines",
    "markdown_table",
    "quantity",
    "scatter",
    "sizing_cells",
    "stacked_bars",
    "to_html",
    "to_markdown",
]
