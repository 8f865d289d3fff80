"""Filters: `contract` says what one is and how verdicts combine; every built-in kind has a file of its own."""
