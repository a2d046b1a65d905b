{# GCS totals from parts: at each time at which a part is charted, with the others of the last few hours. #}
{% from "macros.sql" import charted_reason, hour with context %}
{% set passes = ["charted"] %}
{% set after = ["admitted"] %}
{% set intermediate = true %}

{# Hours for which a part counts when others are charted later. #}
{% set CARRY = 6.0 %}
{% set PARTS = [("eye", 1, 4), ("verbal", 1, 5), ("motor", 1, 6)] %}
{% set names = PARTS | map(attribute=0) | list %}
{# The verbal responses that CareVue and MetaVision chart for intubated patients. #}
{% set intubated = "(v.part = 'verbal' AND r.text IN ('1.0 ET/Trach', 'No Response-ETT'))" %}
{% set points = "CASE WHEN " ~ intubated ~ " THEN 1 ELSE r.number END" %}
{% set earlier = "OVER (PARTITION BY stay ORDER BY hour ROWS UNBOUNDED PRECEDING)" %}

{% macro parts() %}
(SELECT * FROM {{ values(by_item(items.gcs) | rejectattr("1", "eq", "total"), "i", "item", "part") }}
    JOIN {{ values(PARTS, "l", "part", "low", "high") }}
    USING (part))
{% endmacro %}

{% macro rows() %}
SELECT r.stay, {{ hour("r.time") }} AS hour, v.part, {{ points }} AS points,
    CASE WHEN {{ intubated }} THEN 'verbal (intubated)' ELSE v.part END AS kind,
    {% call charted_reason() %}
        WHEN {{ points }} IS NULL THEN 'no number' WHEN {{ points }} NOT BETWEEN v.low AND v.high THEN 'implausible'
    {% endcall %} AS reason
FROM raw_charted r JOIN {{ parts() }} v USING (item)
LEFT JOIN admitted s USING (stay)
{% endmacro %}

{# A part that was never charted leaves its comparison null, and so no total. #}
{% macro table() %}
WITH together AS (
    SELECT stay, hour, {% for part in names %}min(points) FILTER (part = '{{ part }}') AS {{ part }}{{ ", " if not loop.last }}{% endfor %}

    FROM gcs_parts_rows WHERE reason IS NULL GROUP BY stay, hour
)
SELECT stay, hour, {% for part in names %}{{ part }}_last{{ " + " if not loop.last }}{% endfor %} AS value
FROM (
    SELECT stay, hour,
    {% for part in names %}
        last_value({{ part }} IGNORE NULLS) {{ earlier }} AS {{ part }}_last,
        last_value(CASE WHEN {{ part }} IS NOT NULL THEN hour END IGNORE NULLS) {{ earlier }} AS {{ part }}_hour{{ ", " if not loop.last }}
    {% endfor %}
    FROM together
)
WHERE {% for part in names %}hour - {{ part }}_hour <= {{ CARRY }}{{ " AND " if not loop.last }}{% endfor %}

ORDER BY stay, hour
{% endmacro %}
