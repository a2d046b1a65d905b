{# Tables of eICU as the typed rows that rules read.

eICU has no dates: every time is a number of minutes since the stay began, here since a day of no meaning. Stays are thus
kept apart by their own ids, which stand where rules look for an admission. #}

{% set BEGIN = "TIMESTAMP '2000-01-01'" %}
{% macro time(minute="r.minute") %}{{ BEGIN }} + to_minutes({{ minute }}){% endmacro %}

{# A number that was written as text, with or without a percent sign; null if it is none. #}
{% macro number(column) %}TRY_CAST(regexp_replace(trim({{ column }}), ' *%$', '') AS DOUBLE){% endmacro %}

{% macro like(column, pattern) %}regexp_matches(lower({{ column }}), {{ quoted(pattern) }}){% endmacro %}

{# The first of several patterns by name that a text matches. #}
{% macro first_like(column, patterns) %}
CASE {% for name, pattern in patterns %}WHEN {{ like(column, pattern) }} THEN {{ quoted(name) }} {% endfor %}END
{% endmacro %}

{# Which visit to a unit came first is known within a stay in hospital, and between years of discharge. #}
{% macro stays() %}
SELECT stay, subject, stay AS admission, {{ BEGIN }} AS intime, {{ time("left_at") }} AS outtime, 'eicu' AS source, said_age,
    visit > min(visit) OVER (PARTITION BY hospital_stay) OR year > min(year) OVER (PARTITION BY subject) AS earlier
FROM raw_patient
{% endmacro %}

{% macro patients() %}
SELECT subject, CASE gender WHEN 'FEMALE' THEN 'F' WHEN 'MALE' THEN 'M' END AS gender FROM raw_patient
{% endmacro %}

{% macro admissions() %}
SELECT stay AS admission, CASE status WHEN 'EXPIRED' THEN 1 WHEN 'ALIVE' THEN 0 END AS died FROM raw_patient
{% endmacro %}

{# What nurses and therapists typed: its number, or a word for what it says; null where it says nothing that is known. #}
{% set devices, switch = texts.devices, texts.ventilator_switch %}
{% macro typed() %}
SELECT r.stay, r.minute, {{ number("r.said") }} AS number, i.item, NULL AS text, 'values of nurses' AS kind FROM raw_nursecharting r
JOIN {{ values(nursing, "i", "label", "name", "item") }} ON i.label = r.label AND i.name = r.name
UNION ALL
SELECT r.stay, r.minute, NULL,
    CASE WHEN {{ like("trim(r.said)", devices.ventilator) }} THEN {{ item["ventilator"] }} ELSE {{ item["device"] }} END,
    CASE WHEN {{ like("trim(r.said)", devices.ventilator) }} THEN 'ventilator'
        WHEN {{ like("trim(r.said)", devices.oxygen) }} THEN 'device' END, 'oxygen devices'
FROM raw_nursecharting r WHERE r.label = {{ quoted(devices.label) }}
UNION ALL
SELECT r.stay, r.minute, {{ number("r.said") }}, {{ item["fio2"] }}, NULL, 'FiO2 of therapists'
FROM raw_respiratorycharting r WHERE r.label IN ({{ quoted_all(texts.respiratory.fio2) }})
UNION ALL
SELECT r.stay, r.minute, NULL, {{ item["ventilator"] }}, CASE WHEN trim(r.said) <> '' THEN 'ventilator' END, 'settings of ventilators'
FROM raw_respiratorycharting r WHERE r.label IN ({{ quoted_all(texts.respiratory.ventilator) }})
UNION ALL
SELECT r.stay, r.minute, NULL, CASE WHEN lower(trim(r.said)) IN ({{ quoted_all(switch.off) }}) THEN {{ item["off"] }} ELSE {{ item["ventilator"] }} END,
    CASE WHEN lower(trim(r.said)) IN ({{ quoted_all(switch.on + switch.off) }}) THEN 'ventilator' END, 'ventilators on or off'
FROM raw_respiratorycharting r WHERE r.label = {{ quoted(switch.label) }}
{% endmacro %}

{% macro charted_read() %}
SELECT *, CASE WHEN number IS NULL AND text IS NULL THEN 'a text that is not known' END AS reason FROM ({{ typed() }})
{% endmacro %}

{% macro weights() %}
SELECT stay, {{ BEGIN }} AS time, kg AS number, {{ item["kg"] }} AS item, NULL AS text FROM raw_patient WHERE kg IS NOT NULL
UNION ALL
SELECT r.stay, {{ time() }}, r.number, i.item, NULL FROM raw_intakeoutput r
JOIN {{ values(body_weight, "i", "leaf", "item") }} ON i.leaf = split_part(r.path, '|', -1)
{% endmacro %}

{% macro charted() %}
SELECT *, false AS flagged FROM (
    SELECT stay, {{ time() }} AS time, number, {{ item["mean_bp"] }} AS item, NULL::VARCHAR AS text FROM raw_vitalperiodic r
    UNION ALL SELECT stay, {{ time() }}, number, {{ item["mean_bp"] }}, NULL FROM raw_vitalaperiodic r
    UNION ALL SELECT stay, {{ time() }}, number, item, text FROM ({{ charted_read() }}) r WHERE reason IS NULL AND item <> {{ item["off"] }}
    UNION ALL {{ weights() }}
)
{% endmacro %}

{% macro procedures() %}
SELECT stay, {{ time() }} AS time, item, false AS cancelled FROM ({{ charted_read() }}) r
WHERE reason IS NULL AND item = {{ item["off"] }}
{% endmacro %}

{# Of results that were revised the last one counts. #}
{% macro labs() %}
SELECT p.subject, r.stay AS admission, {{ time() }} AS time, r.number, i.item, NULL::VARCHAR AS text FROM raw_lab r
JOIN {{ values(labs_items, "i", "label", "item") }} USING (label) JOIN {{ people() }} p USING (stay)
QUALIFY rank() OVER (PARTITION BY r.stay, i.item, r.minute ORDER BY r.revised DESC NULLS LAST) = 1
{% endmacro %}

{% macro people() %}(SELECT DISTINCT stay, subject FROM raw_patient){% endmacro %}

{# What went out: the last parts of a path and the label say what it was. #}
{% set cell = "split_part(r.path, '|', -1) || ' ' || coalesce(r.label, '')" %}
{% macro outputs_read() %}
SELECT r.*, 'output' AS kind, {{ item["urine"] }} AS item,
    CASE WHEN {{ like(cell, texts.not_urine) }} OR NOT {{ like(cell, texts.urine) }} THEN 'not urine' END AS reason
FROM raw_intakeoutput r WHERE r.path LIKE '%|Output (ml)|%'
UNION ALL
SELECT r.*, 'irrigant', {{ item["irrigant"] }}, NULL FROM raw_intakeoutput r
WHERE r.path LIKE '%|Intake (ml)|%' AND {{ like(cell, texts.irrigant) }}
{% endmacro %}

{% macro outputs() %}
SELECT stay, {{ time() }} AS time, number, item, path || '|' || coalesce(label, '') AS cell, false AS flagged
FROM ({{ outputs_read() }}) r WHERE reason IS NULL
{% endmacro %}

{# Rates of vasopressors: drug and unit are in one text, `Norepinephrine (mcg/kg/min)`, the rate is a text, too. A rate in
   mL/h is a dose if drug and fluid in the bag are known: milligrams by custom, units of vasopressin. #}
{% set drugs = texts.vasopressors.items() | list %}
{% set unit = "lower(regexp_extract(r.name, '\\(([^()]*)\\)[^()]*$', 1))" %}
{% macro infusions() %}
SELECT *, CASE WHEN unit = 'ml/hr' AND drug = 'vasopressin' THEN 'units/hr' WHEN unit = 'ml/hr' THEN 'mg/hr' ELSE unit END AS rate_unit,
    CASE WHEN unit = 'ml/hr' AND number <> 0 THEN number * bag / volume_ml ELSE number END AS rate
FROM (
    SELECT r.stay, r.minute, {{ first_like("r.name", drugs) }} AS drug, {{ unit }} AS unit, {{ number("r.said") }} AS number,
        trim(r.said) AS said, {{ number("r.kg") }} AS weight,
        CASE WHEN {{ number("r.drug_amount") }} > 0 THEN {{ number("r.drug_amount") }} END AS bag,
        CASE WHEN {{ number("r.volume") }} > 0 THEN {{ number("r.volume") }} END AS volume_ml,
        {{ like("trim(r.said)", texts.off) }} AS stopped,
        {% for name, pattern in drugs %}{{ like("r.name", pattern) }}::INTEGER{{ " + " if not loop.last }}{% endfor %} AS named
    FROM raw_infusiondrug r
)
{% endmacro %}

{# A rate of zero ends an infusion, whatever its unit. #}
{% macro infusions_read() %}
SELECT *, drug AS kind, CASE WHEN named > 1 THEN 'names several drugs' WHEN stopped OR number = 0 THEN NULL
    WHEN coalesce(said, '') = '' THEN 'no rate' WHEN number IS NULL THEN 'a rate that is no number'
    WHEN unit IN ('', 'unknown', 'ml') THEN 'no unit' WHEN rate IS NULL THEN 'mL/h without a concentration' END AS reason
FROM ({{ infusions() }})
{% endmacro %}

{# What went in: rows of the intake that are no fluid by vein, and those of which the text does not tell. #}
{% set part = "regexp_extract(r.path, 'Intake \\(ml\\)\\|([^|]*)', 1)" %}
{% macro intake() %}
SELECT r.*, lower(CASE WHEN {{ like(part, "^(blood|colloid|nutrition)") }} THEN {{ part }} || ' ' ELSE '' END || {{ cell }}) AS text
FROM raw_intakeoutput r WHERE r.path LIKE '%|Intake (ml)|%' AND NOT {{ like(cell, texts.irrigant) }}
{% endmacro %}

{% macro intake_read() %}
SELECT *, 'intake' AS kind, CASE WHEN other IS NOT NULL THEN other WHEN fluid IS NULL THEN 'a text that is not known' END AS reason
FROM (SELECT *, {{ first_like("text", texts.not_fluids.items()) }} AS other, {{ first_like("text", fluids) }} AS fluid FROM ({{ intake() }}) r)
{% endmacro %}

{% macro inputs_carevue_read() %}
SELECT kind, reason FROM ({{ infusions_read() }}) UNION ALL SELECT kind, reason FROM ({{ intake_read() }})
{% endmacro %}

{% macro inputs_carevue() %}
SELECT stay, {{ time() }} AS time, NULL::DOUBLE AS amount, CASE WHEN stopped THEN NULL ELSE rate END AS rate, weight, i.item,
    NULL::VARCHAR AS amount_unit, rate_unit, NULL::VARCHAR AS order_id, stopped
FROM ({{ infusions_read() }}) r JOIN {{ values(treatments, "i", "drug", "item") }} USING (drug) WHERE reason IS NULL
UNION ALL
SELECT stay, {{ time() }}, number, NULL, NULL, i.item, 'ml', NULL, path || '|' || coalesce(label, ''), false
FROM ({{ intake_read() }}) r JOIN {{ values(treatments, "i", "fluid", "item") }} USING (fluid) WHERE reason IS NULL
{% endmacro %}

{# CareVue's way of charting is eICU's: no intervals of orders. #}
{% macro inputs_metavision() %}
SELECT stay, {{ time() }} AS start, NULL::TIMESTAMP AS stop, NULL::DOUBLE AS amount, NULL::DOUBLE AS rate, {{ number("r.kg") }} AS weight,
    -1 AS item, NULL::VARCHAR AS amount_unit, NULL::VARCHAR AS rate_unit, NULL::VARCHAR AS order_id, false AS cancelled
FROM raw_infusiondrug r WHERE r.kg IS NOT NULL
{% endmacro %}

{% macro prescriptions() %}
SELECT p.subject, r.stay AS admission, {{ time() }} AS time, true AS time_known
FROM (SELECT stay, minute FROM raw_medication
{% if "treatment" in tables %}
    UNION ALL SELECT stay, minute FROM raw_treatment
    WHERE {{ like("name", texts.antibacterials) }} AND NOT {{ like("name", texts.prophylactic) }}
{% endif %}
) r JOIN {{ people() }} p USING (stay)
{% endmacro %}

{% macro microbiology() %}
SELECT p.subject, r.stay AS admission, {{ time() }} AS time, NULL::TIMESTAMP AS day
FROM (
    SELECT NULL::BIGINT AS stay, NULL::INTEGER AS minute WHERE false
{% if "microlab" in tables %}
    UNION ALL SELECT stay, minute FROM raw_microlab
{% endif %}
{% if "treatment" in tables %}
    UNION ALL SELECT stay, minute FROM raw_treatment WHERE {{ like("name", texts.cultures) }}
{% endif %}
) r JOIN {{ people() }} p USING (stay)
{% endmacro %}
