{# Infusions as intervals in norepinephrine equivalents per kg and minute. #}
{% from "macros.sql" import hour, no_stay, outside, plain_unit with context %}
{% set carevue = "inputs_carevue" in tables %}
{% set passes = ["inputs_metavision", "inputs_carevue"] if carevue else ["inputs_metavision"] %}
{% set after = ["admitted", "stays"] %}

{# Units/min above which a rate was meant per hour (as in the AI Clinician). #}
{% set MOST_VASOPRESSIN = 0.2 %}
{# Hours within which the next chart of a drug ends a charted rate, and those that it lasts if none follows. #}
{% set CAREVUE_HOLD, CAREVUE_ALONE = 4.0, 1.0 %}
{# Rates at moments are charted by CareVue and in eICU, which knows the weight of the moment, too. #}
{% set charts, charted_weight = ("eicu", "r.weight") if release == "eICU" else ("carevue", "NULL") %}

{# Charted units (as `plain_unit` writes them): what they measure, and the factor to mcg/min or units/min. #}
{% set UNITS = [
    ("mcgkgmin", "mass per kg", 1.0),
    ("mcgkghr", "mass per kg", 1 / 60),
    ("mgkgmin", "mass per kg", 1000.0),
    ("mgkghr", "mass per kg", 1000 / 60),
    ("mcgmin", "mass", 1.0),
    ("mcghr", "mass", 1 / 60),
    ("mgmin", "mass", 1000.0),
    ("mghr", "mass", 1000 / 60),
    ("umin", "units", 1.0),
    ("uhr", "units per hour", 1 / 60),
] %}

{# Rows with `drug`, and `equivalent`: the rate in mcg/kg/min; null if the unit does not fit. #}
{% macro in_equivalents(rows, weight, more) %}
{% set known = "coalesce(CASE WHEN " ~ weight ~ " BETWEEN " ~ PLAUSIBLE_WEIGHT[0] ~ " AND " ~ PLAUSIBLE_WEIGHT[1] ~ " THEN " ~ weight ~ " END, w.weight)" %}
{% set mass = "d.drug <> 'vasopressin'" %}
{% set per_hour = "(NOT (" ~ mass ~ ") AND u.measure = 'units' AND r.rate > " ~ MOST_VASOPRESSIN ~ ")" %}
SELECT r.*, d.drug, d.factor * CASE
        WHEN {{ mass }} AND u.measure = 'mass per kg' THEN r.rate * u.factor
        WHEN {{ mass }} AND u.measure = 'mass' THEN r.rate * u.factor / coalesce({{ known }}, {{ DEFAULT_WEIGHT }})
        WHEN {{ per_hour }} THEN r.rate / 60
        WHEN NOT ({{ mass }}) AND u.measure IN ('units', 'units per hour') THEN r.rate * u.factor END AS equivalent,
    {{ more }}, {{ per_hour }} AS taken_per_hour,
    {{ mass }} AND u.measure = 'mass' AND {{ known }} IS NULL AS default_weight
FROM {{ rows }} r
JOIN {{ values(by_item(items.vasopressors, items.norepinephrine_equivalent), "d", "item", "drug", "factor") }} USING (item)
LEFT JOIN {{ values(UNITS, "u", "unit", "measure", "factor") }} ON u.unit = {{ plain_unit("r.rate_unit") }}
LEFT JOIN admitted s USING (stay) LEFT JOIN stays w ON w.stay = r.stay::VARCHAR
{% endmacro %}

{% macro metavision() %}
{% set copies = "row_number() OVER (PARTITION BY r.stay, r.start, r.stop, r.item, r.rate, r.order_id, r.cancelled)" %}
{% set times = hour("r.start") ~ " AS start_hour, " ~ hour("r.stop") ~ " AS stop_hour, " ~ copies ~ " AS copy" %}
SELECT r.stay, r.start_hour AS start, r.stop_hour AS stop, r.item, r.drug, false AS charted,
    false AS stopped, r.equivalent AS rate, r.drug || ', metavision' AS kind, r.default_weight, r.taken_per_hour,
    CASE {{ no_stay() }}
        WHEN r.start IS NULL OR r.stop IS NULL THEN 'no time'
        WHEN r.cancelled THEN 'cancelled or rewritten'
        WHEN r.rate IS NULL THEN 'no rate'
        WHEN r.stop < r.start THEN 'negative duration'
        WHEN r.stop = r.start THEN 'no duration'
        WHEN r.rate <= 0 THEN 'rate not above zero'
        WHEN r.equivalent IS NULL THEN 'unit not known'
        WHEN r.equivalent > {{ MOST_RATE }} THEN 'implausible'
        {{ outside("r.start_hour", "r.stop_hour") }}
        WHEN r.copy > 1 THEN 'duplicate' END AS reason
FROM ({{ in_equivalents("raw_inputs_metavision", "r.weight", times) }}) r LEFT JOIN admitted s USING (stay)
{% endmacro %}

{% macro charted() %}
{% set copies = "row_number() OVER (PARTITION BY r.stay, r.time, r.item, r.rate, r.stopped, r.amount IS NULL)" %}
{% set times = hour("r.time") ~ " AS hour, " ~ copies ~ " AS copy" %}
SELECT r.stay, r.hour, NULL, r.item, r.drug, true, r.stopped, coalesce(r.equivalent, 0),
    r.drug || ', {{ charts }}', r.default_weight, r.taken_per_hour,
    CASE {{ no_stay() }}
        WHEN r.time IS NULL THEN 'no time'
        WHEN r.rate IS NULL AND NOT r.stopped AND r.amount IS NOT NULL THEN 'amount without a rate'
        WHEN r.rate IS NULL AND NOT r.stopped THEN 'no rate'
        WHEN r.rate < 0 THEN 'negative rate'
        WHEN r.equivalent IS NULL AND r.rate <> 0 AND NOT r.stopped THEN 'unit not known'
        WHEN r.equivalent > {{ MOST_RATE }} THEN 'implausible'
        {{ outside("r.hour", "r.hour") }}
        WHEN r.copy > 1 THEN 'duplicate' END
FROM ({{ in_equivalents("raw_inputs_carevue", charted_weight, times) }}) r LEFT JOIN admitted s USING (stay)
{% endmacro %}

{% macro rows() %}
{{ metavision() }}{% if carevue %} UNION ALL {{ charted() }}{% endif %}
{% endmacro %}

{% macro table() %}
WITH points AS (
    SELECT stay, drug, start, max(rate) AS rate FROM (
        SELECT stay, drug, item, start, CASE WHEN bool_or(stopped) THEN 0 ELSE max(rate) END AS rate
        FROM vasopressors_rows WHERE reason IS NULL AND charted GROUP BY stay, drug, item, start
    ) GROUP BY stay, drug, start
), lasting AS (
    SELECT *, lead(start) OVER (PARTITION BY stay, drug ORDER BY start) AS next FROM points
), every AS (
    SELECT stay, start, rate, drug,
        CASE WHEN next - start <= {{ CAREVUE_HOLD }} THEN next ELSE start + {{ CAREVUE_ALONE }} END AS stop
    FROM lasting WHERE rate > 0
    UNION ALL
    SELECT stay, start, rate, drug, stop FROM vasopressors_rows WHERE reason IS NULL AND NOT charted
)
SELECT stay::VARCHAR AS stay, start, stop, rate, drug FROM every
ORDER BY every.stay, start, stop, drug, rate
{% endmacro %}

{% macro kept_where(condition) %}
SELECT count(*) FROM vasopressors_rows WHERE reason IS NULL AND {{ condition }}
{% endmacro %}

{# Charted rates that no chart of the drug follows in time: how long they ran is not known. #}
{% macro unfollowed() %}
SELECT count(*) FROM (
    SELECT start, rate, lead(start) OVER (PARTITION BY stay, drug ORDER BY start) AS next FROM (
        SELECT stay, drug, start, max(rate) AS rate FROM vasopressors_rows WHERE reason IS NULL AND charted GROUP BY ALL
    )
) WHERE rate > 0 AND (next IS NULL OR next - start > {{ CAREVUE_HOLD }})
{% endmacro %}

{% set figures = {
    "rates with an assumed weight": kept_where("default_weight"),
    "vasopressin per minute taken as per hour": kept_where("taken_per_hour"),
} %}
{% set figures = dict(figures, **{"charted rates that nothing follows in time": unfollowed()}) if release == "eICU" else figures %}
