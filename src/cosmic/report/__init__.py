"""Results for people: charts, pages, documents of studies, and the live page.

Other rooms take from here text, SVG and HTML; nothing but the command line imports it. Read `study_report` first: it
turns a study on disk into one document (of the types in `document_types`), whose numbers a `container` packs and which
`html_file` writes as one self-contained file around the built front end in `front/`. `design_view` and `serving_view`
describe one design, `trial_block` packs all trials, and `trust` says how far to believe them. `serving_report`,
`sizing_report`, `trace_page`, `fleet_charts`, `accuracy_page` and `search_charts` do the same for other results; most
are a `page`, which is written by `markdown` or `html_file` and holds drawings of `charts`. `live` serves the same
documents to a browser on this machine while searches run.
"""
