"""Pages of text, tables and charts of one's own, written as Markdown with SVG, as the case studies are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.report.charts.drawing import Axis, Point, Series, quantity
    from cosmic.report.charts.plots import Bar, BarGroup, LineAcross, Mark, bars, heat_map, lines, scatter, stacked_bars
    from cosmic.report.markdown import table as markdown_table
    from cosmic.report.page import Code, Figure, Heading, Items, Page, Part, Table, Text, to_html, to_markdown
    from cosmic.report.sizing_report import PAGE_COLUMNS as SIZING_COLUMNS
    from cosmic.report.sizing_report import row_cells as sizing_cells
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Axis": "cosmic.report.charts.drawing",
            "Bar": "cosmic.report.charts.plots",
            "BarGroup": "cosmic.report.charts.plots",
            "Code": "cosmic.report.page",
            "Figure": "cosmic.report.page",
            "Heading": "cosmic.report.page",
            "Items": "cosmic.report.page",
            "LineAcross": "cosmic.report.charts.plots",
            "Mark": "cosmic.report.charts.plots",
            "Page": "cosmic.report.page",
            "Part": "cosmic.report.page",
            "Point": "cosmic.report.charts.drawing",
            "SIZING_COLUMNS": "cosmic.report.sizing_report:PAGE_COLUMNS",
            "Series": "cosmic.report.charts.drawing",
            "Table": "cosmic.report.page",
            "Text": "cosmic.report.page",
            "bars": "cosmic.report.charts.plots",
            "heat_map": "cosmic.report.charts.plots",
            "lines": "cosmic.report.charts.plots",
            "markdown_table": "cosmic.report.markdown:table",
            "quantity": "cosmic.report.charts.drawing",
            "scatter": "cosmic.report.charts.plots",
            "sizing_cells": "cosmic.report.sizing_report:row_cells",
            "stacked_bars": "cosmic.report.charts.plots",
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
