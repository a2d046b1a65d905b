"""A first schema out of somebody's table: guesses with reasons, and the problems that the table has."""

from ifonly.data.drafts.guess import Draft, guess_schema
from ifonly.data.drafts.problems import Problem
from ifonly.data.drafts.roles import Hints
from ifonly.data.drafts.text import draft_text

__all__ = ["Draft", "Hints", "Problem", "draft_text", "guess_schema"]
