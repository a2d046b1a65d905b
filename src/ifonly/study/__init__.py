"""Studies: one file that says how a table becomes a report, and what is done of it already."""
