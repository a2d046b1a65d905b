"""Checks of models: how well a model explains episodes that it has not seen, and whether to trust it at all.

`check.check_model` makes a check, `model_check.ModelCheck` is one, `model_check.stored_check` finds the one kept with a
model; `sample` abducts, `measure`, `history`, `ahead` and `baselines` measure, `judge` compares with `thresholds`,
`advice` says what to do about it and `remedies` tries that. `ifonly.text.checks` has the words.
"""
