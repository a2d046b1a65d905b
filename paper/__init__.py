"""The paper's experiments, one small module each: settings, work in cells, a table, a figure."""
