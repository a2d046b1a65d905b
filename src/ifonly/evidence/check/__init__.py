"""The gate for models: how well a model explains episodes that it has not seen, and whether to trust it at all.

`check.check_model` makes a check, `result.ModelCheck` is one, `stored.stored_check` finds the one kept with a model.
"""
