"""What a check of a model found, in words."""

from __future__ import annotations

from ifonly.text.catalogue import Message


def concern_message(kind: str) -> Message:
    """What findings of a kind mean where they warn or fail, in a few words."""
    return Message(f"concern.{kind}")
