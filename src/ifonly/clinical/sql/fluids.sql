{# Intravenous fluids as intervals in mL, corrected for tonicity; a bolus has start = stop. #}
{% from "macros.sql" import hour, no_stay, outside, plain_unit with context %}
{% set carevue = "inputs_carevue" in tables %}
{% set passes = ["inputs_metavision", "inputs_carevue"] if carevue else ["inputs_metavision"] %}
{% set after = ["admitted"] %}
{% set figures = {"boluses": "SELECT count(*) FROM fluids_rows WHERE reason IS NULL AND start = stop"} %}

{# An amount in mL: in a unit of any fluid (without one it is in mL), or in one of its own. Sodium bicarbonate of 8.4 %
   has 1 mEq per mL, mannitol of 20 % has 1 g in 5 mL. #}
{% set UNITS = {"ml": 1.0, "cc": 1.0, "l": 1000.0} %}
{% set OTHER_UNITS = [(30030, "meq", 1.0), (220995, "meq", 1.0), (227533, "meq", 1.0), (227531, "grams", 5.0), (227531, "g", 5.0)] %}
{% macro ml() %}
{% set unit = "coalesce(" ~ plain_unit("r.amount_unit") ~ ", 'ml')" %}
r.amount * CASE {% for name, factor in UNITS.items() %}WHEN {{ unit }} = '{{ name }}' THEN {{ factor }} {% endfor %}
    {% for item, name, factor in OTHER_UNITS %}WHEN r.item = {{ item }} AND {{ unit }} = '{{ name }}' THEN {{ factor }} {% endfor %} END
{% endmacro %}

{% macro volumes(name, start, stop, cancelled) %}
SELECT r.stay, {{ hour(start) }} AS start, {{ hour(stop) }} AS stop, {{ ml() }} * f.tonicity AS ml, '{{ "eicu" if release == "eICU" else name }}' AS kind,
    CASE {{ no_stay() }}
        WHEN {{ start }} IS NULL THEN 'no time'
        WHEN {{ cancelled }} THEN 'cancelled or rewritten'
        WHEN r.amount IS NULL THEN 'no amount'
        WHEN r.amount = 0 THEN 'nothing given'
        WHEN r.amount < 0 THEN 'negative amount'
        WHEN {{ stop }} < {{ start }} THEN 'negative duration'
        WHEN {{ ml() }} IS NULL THEN 'unit not known'
        WHEN {{ ml() }} > {{ MOST_FLUID }} THEN 'implausible'
        {{ outside(hour(start), hour(stop)) }}
        WHEN row_number() OVER (PARTITION BY r.stay, {{ start }}, {{ stop }}, r.item, r.amount, r.order_id, {{ cancelled }}) > 1
            THEN 'duplicate' END AS reason
FROM raw_inputs_{{ name }} r
JOIN (VALUES
    {% for item, entry in items.fluids.items() %}
    ({{ item }}, {{ entry.tonicity | float }}){{ ", " if not loop.last }}
    {% endfor %}
) AS f(item, tonicity) USING (item)
LEFT JOIN admitted s USING (stay)
{% endmacro %}

{# CareVue charts what has run in by then: all of it counts at that time. #}
{% macro rows() %}
{{ volumes("metavision", "r.start", "coalesce(r.stop, r.start)", "r.cancelled") }}
{% if carevue %}UNION ALL {{ volumes("carevue", "r.time", "r.time", "false") }}{% endif %}
{% endmacro %}

{% macro table() %}
SELECT stay::VARCHAR AS stay, start, stop, ml FROM fluids_rows WHERE reason IS NULL
ORDER BY fluids_rows.stay, start, stop, ml
{% endmacro %}
