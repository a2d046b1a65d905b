"""Solvers, the one verb that uses them, and what checks their answers again."""
