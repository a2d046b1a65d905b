{# Moments of antibiotics or cultures of the stay's admission; a day without a time counts as its noon. #}
{% from "macros.sql" import hour, same_admission with context %}
{% set after = ["admitted"] %}
{% set pass = {"antibiotics": "prescriptions", "cultures": "microbiology"}[name] %}
{% set passes = [pass] %}

{# Hours before the stay, and after it, in which they still belong to it: an antibiotic may follow a culture of the
   stay's last hour by 72 hours, a culture an antibiotic by 24. #}
{% set MARGINS = {"antibiotics": (72.0, 72.0), "cultures": (72.0, 24.0)} %}

{% macro moments() %}
{% if pass == "microbiology" %}
SELECT subject, admission, coalesce(time, day + INTERVAL 12 HOUR) AS time, time IS NOT NULL AS known FROM raw_microbiology
{% else %}
SELECT subject, admission, CASE WHEN time_known THEN time ELSE time + INTERVAL 12 HOUR END AS time, time_known AS known
FROM raw_prescriptions
{% endif %}
{% endmacro %}

{% macro rows() %}
SELECT s.stay, {{ hour("r.time") }} AS hour, r.known AS time_known, '{{ name }}' AS kind,
    CASE WHEN r.time IS NULL THEN 'no time' WHEN s.stay IS NULL THEN 'no stay' END AS reason
FROM ({{ moments() }}) r
LEFT JOIN admitted s ON {{ same_admission(*MARGINS[name]) }}
{% endmacro %}

{% macro table() %}
SELECT stay::VARCHAR AS stay, hour, bool_or(time_known) AS time_known FROM {{ name }}_rows
WHERE reason IS NULL GROUP BY {{ name }}_rows.stay, hour ORDER BY {{ name }}_rows.stay, hour
{% endmacro %}
