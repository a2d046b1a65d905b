"""The review application: pages and a JSON API over one cohort, one model and, where there is one, a run."""
