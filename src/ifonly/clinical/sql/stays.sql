{# Stays as others read them, with the first plausible charted weight, else that of the first infusion order. #}
{% set passes = ["charted", "inputs_metavision"] %}
{% set after = ["admitted"] %}

{# To kg. #}
{% set FACTORS = {"kg": 1.0, "lb": 0.45359237} %}
{% macro plausible() %}BETWEEN {{ PLAUSIBLE_WEIGHT[0] }} AND {{ PLAUSIBLE_WEIGHT[1] }}{% endmacro %}

{% macro rows() %}
SELECT s.*, coalesce(c.weight, o.weight) AS weight,
    CASE WHEN c.weight IS NOT NULL THEN 'weight charted' WHEN o.weight IS NOT NULL THEN 'weight from infusions'
        ELSE 'no weight' END AS kind, NULL AS reason
FROM admitted s
LEFT JOIN (
    SELECT stay, first(number * factor ORDER BY time, item, number) AS weight
    FROM raw_charted JOIN {{ values(by_item(items.weight, FACTORS), "w", "item", "unit", "factor") }} USING (item)
    WHERE number * factor {{ plausible() }} AND NOT flagged AND time IS NOT NULL GROUP BY stay
) c USING (stay)
LEFT JOIN (
    SELECT stay, first(weight ORDER BY start, weight) AS weight FROM raw_inputs_metavision
    WHERE weight {{ plausible() }} AND start IS NOT NULL GROUP BY stay
) o USING (stay)
{% endmacro %}

{% macro table() %}
SELECT stay::VARCHAR AS stay, subject::VARCHAR AS subject, admission::VARCHAR AS admission, age, female,
    readmission, hours, weight, died_in_hospital, source
FROM stays_rows ORDER BY stays_rows.stay
{% endmacro %}
