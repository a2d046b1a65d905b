{# What rules have in common. Rows are `r`, the stays that they may belong to are `s`. #}

{# Hours before admission to intensive care from which charted values and infusions of a stay count. #}
{% set CHART_MARGIN = 24.0 %}

{# Hours from admission to intensive care until a time. #}
{% macro hour(column) %}(epoch({{ column }}) - epoch(s.intime)) / 3600{% endmacro %}

{% macro no_stay() %}WHEN r.stay IS NULL THEN 'no stay' WHEN s.stay IS NULL THEN 'unknown stay'{% endmacro %}

{% macro outside(start, stop) %}
WHEN {{ stop }} < {{ -CHART_MARGIN }} OR {{ start }} > s.hours THEN 'outside the stay'
{% endmacro %}

{# The reason of rows that are charted at a time: what they have in common around those of their own, the caller's. #}
{% macro charted_reason(last="") %}
CASE {{ no_stay() }} WHEN r.time IS NULL THEN 'no time' WHEN r.flagged THEN 'flagged as an error'
    {{ caller() }} {{ outside(hour("r.time"), hour("r.time")) }} {{ last }} END
{% endmacro %}

{# Rows of the stay's admission (or of none, but of its patient) within the stay and these margins around it. #}
{% macro same_admission(before, after) %}
s.subject = r.subject AND (r.admission IS NULL OR r.admission = s.admission)
    AND {{ hour("r.time") }} BETWEEN {{ -before }} AND s.hours + {{ after }}
{% endmacro %}

{# A unit without blanks and strokes, with one word for each: mcg/kg/hour and mcgkghr are the same. #}
{% macro plain_unit(column) %}
replace(replace(replace(regexp_replace(lower({{ column }}), '[^a-z]', '', 'g'), 'hour', 'hr'), 'units', 'u'), 'unit', 'u')
{% endmacro %}
