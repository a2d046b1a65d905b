"""Whether the gain of a score, such as SOFA, is borne out by the organs that it is made of."""

from __future__ import annotations

import math

import numpy as np

from ifonly.data.episode import Episode, FloatArray, IntArray, Origin
from ifonly.data.scaling import within_ranges
from ifonly.data.scores import Score, ScoredCourse, organ_points
from ifonly.result.evidence import OrganGain, ScoreGain
from ifonly.rewards import Reward, features_of


def points_of(score: Score, episode: Episode, states: FloatArray, actions: IntArray) -> IntArray:
    """The points [..., T, P] of every organ along courses of an episode: states [..., T, D] and actions [..., T].

    What was assumed in the recording scores nothing, neither there nor elsewhere: nobody measured it.
    """
    unknown = None if episode.origins is None else episode.origins == Origin.ASSUMED
    return organ_points(score, episode.schema, ScoredCourse(states, episode.context, actions, unknown))


def score_gains(episode: Episode, reward: Reward, states: FloatArray, actions: IntArray) -> tuple[ScoreGain, ...]:
    """The gain by every score of the schema, from the first to the second of two courses [2, T, D], [2, T]."""
    return tuple(_gain(score, episode, reward, states, actions) for score in episode.schema.scores)


def _gain(score: Score, episode: Episode, reward: Reward, states: FloatArray, actions: IntArray) -> ScoreGain:
    column = episode.schema.dynamic_index(score.feature)
    modelled = within_ranges(episode.schema.dynamic, states)[..., column]
    with np.errstate(invalid="ignore"):
        claimed = (modelled[0] - modelled[1]).sum()
    every = np.concatenate([states, episode.states[np.newaxis]]), np.concatenate([actions, [episode.actions]])
    points = points_of(score, episode, *every)
    gains = (points[0] - points[1]).sum(axis=0)
    recorded = points[2].sum(axis=-1)
    return ScoreGain(
        score=score.feature,
        asked=score.feature in features_of(reward),
        claimed=float(claimed) if np.isfinite(claimed) else math.nan,
        recomputed=float(gains.sum()),
        organs=tuple(OrganGain(organ, float(gain)) for organ, gain in zip(score.organs, gains, strict=True)),
        left_out=score.left_out,
        recorded_difference=float(np.abs(recorded - episode.states[:, column]).mean()),
    )
