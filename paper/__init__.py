"""The experiments of the paper, the warning study and the accuracy study, as users of `ifonly`; not installed."""
