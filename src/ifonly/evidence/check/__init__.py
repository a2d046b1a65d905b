"""Checks of models: how well a model explains episodes that it has not seen, and whether to trust it at all.

`check.check_model` makes a check, `model_check.ModelCheck` is one, `model_check.stored_check` finds the one kept with a
model; `sample` abducts, `measure` measures, `judge` compares with `thresholds`. `ifonly.text.checks` has the words.
"""
