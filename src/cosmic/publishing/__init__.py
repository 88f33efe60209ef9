"""A study as one document, and the page that shows it."""
