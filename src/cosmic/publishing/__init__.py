"""What a study found, for people: one document, and one page that shows it."""
