{# Urine in mL per moment; irrigant that went in counts against what came out, so single moments may be negative. #}
{% from "macros.sql" import charted_reason, hour with context %}
{% set passes = ["outputs"] %}
{% set after = ["admitted"] %}

{# mL in one row; more is a slip. #}
{% set MOST = 10000 %}
{% set KINDS = {"urine": items.urine, "irrigant in": items.irrigant_in} %}
{% set SIGNS = {"urine": 1, "irrigant in": -1} %}
{# In eICU all urine is one item; the cell of the chart says from which outlet it came. #}
{% set outlet = "r.item, r.cell" if release == "eICU" else "r.item" %}
{% set copies = "row_number() OVER (PARTITION BY r.stay, r.time, " ~ outlet ~ ", r.number, r.flagged)" %}

{% macro rows() %}
SELECT r.stay, {{ hour("r.time") }} AS hour, v.sign * r.number AS ml, v.kind,
    {% call charted_reason(last="WHEN " ~ copies ~ " > 1 THEN 'duplicate'") %}
        WHEN r.number IS NULL THEN 'no number' WHEN r.number NOT BETWEEN 0 AND {{ MOST }} THEN 'implausible'
    {% endcall %} AS reason
FROM raw_outputs r
JOIN {{ values(by_item(KINDS, SIGNS), "v", "item", "kind", "sign") }} USING (item)
LEFT JOIN admitted s USING (stay)
{% endmacro %}

{% macro table() %}
SELECT stay::VARCHAR AS stay, hour, sum(ml) AS ml FROM urine_rows WHERE reason IS NULL
GROUP BY urine_rows.stay, hour ORDER BY urine_rows.stay, hour
{% endmacro %}
