"""From clinical tables, as they are shipped, to episodes: events, steps of four hours, scores, cohorts.

This room knows episodes and nothing to the right of them: no model, no search.
"""
