"""From clinical tables, as they are shipped, to episodes: events, steps of four hours, scores, cohorts.

Imports `ifonly.data` only: no model, no search.
"""
