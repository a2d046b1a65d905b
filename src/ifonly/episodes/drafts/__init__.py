"""A first schema out of somebody's table: guesses with reasons, and the problems that the table has."""

from ifonly.episodes.drafts.guess import Draft, guess_schema
from ifonly.episodes.drafts.problems import Problem
from ifonly.episodes.drafts.roles import Hints
from ifonly.episodes.drafts.text import draft_text

__all__ = ["Draft", "Hints", "Problem", "draft_text", "guess_schema"]
