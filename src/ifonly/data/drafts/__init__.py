"""A first schema guessed from a table: every guess with its reason, and the problems of the table."""

from ifonly.data.drafts.draft import Draft, TableProblem, guess_schema
from ifonly.data.drafts.draft_yaml import draft_text
from ifonly.data.drafts.roles import Hints

__all__ = ["Draft", "Hints", "TableProblem", "draft_text", "guess_schema"]
