"""A first schema out of somebody's table: guesses with reasons, and the problems that the table has."""

from ifonly.data.drafts.draft import Draft, TableProblem, guess_schema
from ifonly.data.drafts.draft_yaml import draft_text
from ifonly.data.drafts.roles import Hints

__all__ = ["Draft", "Hints", "TableProblem", "draft_text", "guess_schema"]
