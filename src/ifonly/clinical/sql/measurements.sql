{# Measurements in one unit each; of several at the same time their median; GCS from its parts or as charted. #}
{% from "macros.sql" import charted_reason, hour, same_admission with context %}
{% set passes = ["charted", "labs"] %}
{% set after = ["admitted", "gcs_parts"] %}

{# Hours before admission to intensive care from which laboratory values count. #}
{% set LAB_MARGIN = 48.0 %}
{# What is kept, in the units of the event tables; the rest is counted and removed. #}
{% set PLAUSIBLE = {
    "mean_bp": (10, 250),
    "pao2": (10, 700),
    "platelets": (1, 2000),
    "bilirubin": (0, 80),
    "creatinine": (0.05, 60),
    "gcs": (3, 15),
} %}

{# The value in the unit of the event tables; null if it is implausible. FiO2 is charted in percent or as a fraction, by
   the same items. #}
{% macro value() %}
CASE v.kind WHEN 'fio2' THEN CASE WHEN r.number BETWEEN 0.2 AND 1 THEN r.number
    WHEN r.number BETWEEN 20.0 AND 100 THEN r.number / 100 END
{% for name, (low, high) in PLAUSIBLE.items() %}
    WHEN '{{ name }}' THEN CASE WHEN r.number BETWEEN {{ low }} AND {{ high }} THEN r.number END
{% endfor %}
END
{% endmacro %}

{% macro unusable() %}
WHEN r.number IS NULL THEN 'no number' WHEN {{ value() }} IS NULL THEN 'implausible'
{% endmacro %}

{% macro rows() %}
SELECT r.stay, {{ hour("r.time") }} AS hour, v.kind, {{ value() }} AS value,
    {% call charted_reason() %}{{ unusable() }}{% endcall %} AS reason
FROM raw_charted r
JOIN {{ values(by_item(items.charted) + by_item({"gcs": items.gcs.total}), "v", "item", "kind") }} USING (item)
LEFT JOIN admitted s USING (stay)
UNION ALL
SELECT s.stay, {{ hour("r.time") }}, v.kind, {{ value() }},
    CASE WHEN r.time IS NULL THEN 'no time' {{ unusable() }}
        WHEN v.kind = 'pao2' AND n.time IS NOT NULL THEN 'not arterial' WHEN s.stay IS NULL THEN 'no stay' END
FROM raw_labs r JOIN {{ values(by_item(items.labs), "v", "item", "kind") }} USING (item)
LEFT JOIN (
    SELECT DISTINCT subject, time FROM raw_labs
    WHERE item IN ({{ items.blood_gas_specimen | join(", ") }}) AND text IS NOT NULL
        AND upper(trim(text)) NOT IN ('ART', 'ART.', 'ARTERIAL')
) n ON n.subject = r.subject AND n.time = r.time
LEFT JOIN admitted s ON {{ same_admission(LAB_MARGIN, 0) }}
{% endmacro %}

{% macro table() %}
WITH direct AS (
    SELECT stay, hour, kind AS variable, CASE kind WHEN 'gcs' THEN min(value) ELSE median(DISTINCT value) END
        AS value, true AS charted
    FROM measurements_rows WHERE reason IS NULL GROUP BY stay, hour, kind
), every AS (SELECT * FROM direct UNION ALL SELECT stay, hour, 'gcs', value, false FROM gcs_parts)
SELECT stay::VARCHAR AS stay, hour, variable, first(value ORDER BY charted DESC) AS value
FROM every GROUP BY every.stay, hour, variable ORDER BY every.stay, variable, hour
{% endmacro %}

{% macro together() %}
(SELECT count(*) AS rows, count(DISTINCT value) AS different FROM measurements_rows
    WHERE reason IS NULL GROUP BY stay, hour, kind)
{% endmacro %}

{% set figures = {
    "duplicates": "SELECT coalesce(sum(rows - different), 0)::BIGINT FROM " ~ together(),
    "merged with others of the same time": "SELECT coalesce(sum(different - 1), 0)::BIGINT FROM " ~ together(),
} %}
