{# Moments with evidence for (`on`) or against mechanical ventilation.

Of several at one moment an extubation counts before ventilator settings, and these before an oxygen mask. #}
{% from "macros.sql" import charted_reason, hour with context %}
{% set passes = ["charted", "procedures"] if "procedures" in tables else ["charted"] %}
{% set after = ["admitted"] %}

{# The CareVue item that names extubations; the others name devices. #}
{% set SIGNIFICANT_EVENTS = "640" %}

{# Whether an item was charted with one of the words that are listed for it. #}
{% macro said_one_of(entries) %}
{% set comma = joiner(", ") %}
(r.item, said) IN (
{% for item, entry in entries %}
{% for text in entry["values"] %}
    {{ comma() }}({{ item }}, {{ quoted(text.lower()) }})
{% endfor %}
{% endfor %}
)
{% endmacro %}

{% macro evidence() %}
{% set texts, off = items.ventilation_text, items.off_ventilation %}
{% set any_but = texts.items() | selectattr("1.on", "eq", "anything but") | list %}
{% set only = texts.items() | selectattr("1.on", "eq", "only") | list %}
{% set extubations = off.items() | selectattr("0", "eq", SIGNIFICANT_EVENTS) | list %}
{% set devices = off.items() | rejectattr("0", "eq", SIGNIFICANT_EVENTS) | list %}
SELECT stay, time, flagged, CASE WHEN said IS NULL THEN 'nothing charted'
    WHEN r.item IN ({{ ids_of(items.ventilation, dict(any_but)) | join(", ") }}) AND NOT {{ said_one_of(any_but) }} OR {{ said_one_of(only) }}
        THEN 'ventilator'
    WHEN {{ said_one_of(extubations) }} THEN 'extubation'
    WHEN {{ said_one_of(devices) }} THEN 'oxygen device'
    ELSE 'no evidence' END AS kind
FROM (
    SELECT *, lower(trim(text)) AS said FROM raw_charted
    WHERE item IN ({{ ids_of(items.ventilation, texts, off) | join(", ") }})
) r
{% if "procedures" in tables %}
UNION ALL SELECT stay, time, cancelled, 'extubation' FROM raw_procedures
{% endif %}
{% endmacro %}

{% macro rows() %}
SELECT r.stay, {{ hour("r.time") }} AS hour, r.kind,
    {% call charted_reason() %}WHEN r.kind IN ('nothing charted', 'no evidence') THEN 'no evidence'{% endcall %} AS reason
FROM ({{ evidence() }}) r LEFT JOIN admitted s USING (stay)
{% endmacro %}

{% macro table() %}
SELECT stay::VARCHAR AS stay, hour,
    CASE WHEN bool_or(kind = 'extubation') THEN false ELSE bool_or(kind = 'ventilator') END AS "on"
FROM ventilation_rows WHERE reason IS NULL GROUP BY ventilation_rows.stay, hour
ORDER BY ventilation_rows.stay, hour
{% endmacro %}
