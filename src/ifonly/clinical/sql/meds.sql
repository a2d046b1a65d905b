{# Events of a MEDS dataset as the typed rows that rules read. #}

{# Intervals: each start with the end that closes it, first in, first out, of the same subject and entry. At the same
   moment ends come first, as when a rate is changed. `level` is how many are open, `below` how many ends had none. Rows of
   entries without codes of ends know their own. #}
{% macro paired(purpose) %}
WITH marked AS (
    SELECT *, CASE part WHEN 'start' THEN 1 ELSE -1 END AS change FROM raw_meds_events
    WHERE purpose = '{{ purpose }}' AND part <> 'at' AND time IS NOT NULL AND item NOT IN ({{ ending | join(", ") }})
), counted AS (
    SELECT *, sum(change) OVER (PARTITION BY subject, item ORDER BY time, change, number, id ROWS UNBOUNDED PRECEDING) AS total FROM marked
), floored AS (
    SELECT *, least(0, min(total) OVER (PARTITION BY subject, item ORDER BY time, change, number, id ROWS UNBOUNDED PRECEDING)) AS below FROM counted
), flagged AS (
    SELECT *, total - below AS level,
        below < coalesce(lag(below) OVER (PARTITION BY subject, item ORDER BY time, change, number, id), 0) AS alone FROM floored
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY subject, item, part ORDER BY time, change, number, id) AS place FROM flagged WHERE NOT alone
)
SELECT s.subject, s.item, s.id, s.time AS start, e.time AS stop, s.number AS number_at_start, e.number AS number_at_end,
    s.level > 1 OR coalesce(e.level > 0, false) AS ambiguous
FROM (SELECT * FROM numbered WHERE part = 'start') s
LEFT JOIN (SELECT * FROM numbered WHERE part = 'end') e USING (subject, item, place)
UNION ALL
SELECT subject, item, id, NULL, time, NULL, number, false FROM flagged WHERE alone
UNION ALL
SELECT subject, item, id, time, stop, number, NULL, false FROM raw_meds_events
WHERE purpose = '{{ purpose }}' AND time IS NOT NULL AND item IN ({{ ending | join(", ") }})
{% endmacro %}

{# Rows with the stay that they fall into: the first that is not over, from 24 hours before it. #}
{% macro within_stay(rows, start, stop) %}
SELECT s.stay, r.* FROM ({{ rows }}) r
LEFT JOIN raw_stays s ON s.subject = r.subject AND {{ stop }} >= s.intime - INTERVAL 24 HOUR AND {{ start }} <= s.outtime
QUALIFY row_number() OVER (PARTITION BY r.id ORDER BY s.intime) = 1
{% endmacro %}

{% macro of() %}
SELECT * FROM raw_meds_events WHERE purpose IN ({% for one in varargs %}'{{ one }}'{{ ", " if not loop.last }}{% endfor %})
{% endmacro %}

{% macro stays() %}
SELECT subject || '-' || row_number() OVER (PARTITION BY subject ORDER BY start, stop) AS stay, subject, stay AS admission,
    start AS intime, stop AS outtime, 'meds' AS source
FROM ({{ paired("stays") }})
{% endmacro %}

{% macro patients() %}
SELECT subject, min(time) FILTER (purpose = 'birth') AS born,
    CASE WHEN bool_or(purpose = 'female') AND NOT bool_or(purpose = 'male') THEN 'F'
        WHEN bool_or(purpose = 'male') AND NOT bool_or(purpose = 'female') THEN 'M' END AS gender
FROM ({{ of("birth", "female", "male") }}) GROUP BY subject
{% endmacro %}

{# A death in hospital belongs to the last stay that began before it. #}
{% macro admissions() %}
{% if knows_deaths %}
SELECT s.stay AS admission, max(CASE WHEN d.time >= s.intime AND (s.next IS NULL OR d.time < s.next) THEN 1 ELSE 0 END) AS died
FROM (SELECT *, lead(intime) OVER (PARTITION BY subject ORDER BY intime) AS next FROM raw_stays) s
LEFT JOIN ({{ of("died_in_hospital") }}) d USING (subject) GROUP BY s.stay
{% else %}
SELECT stay AS admission, NULL::INTEGER AS died FROM raw_stays
{% endif %}
{% endmacro %}

{% macro charted() %}
SELECT stay, time, number, item, CASE purpose WHEN 'ventilation on' THEN 'charted' END AS text, false AS flagged
FROM ({{ within_stay(of("weight", "gcs_eye", "gcs_verbal", "gcs_motor", "ventilation on"), "r.time", "r.time") }})
{% endmacro %}

{% macro labs() %}
SELECT subject, NULL::VARCHAR AS admission, time, number, item, NULL::VARCHAR AS text
FROM ({{ of("mean_bp", "fio2", "pao2", "platelets", "bilirubin", "creatinine", "gcs") }})
{% endmacro %}

{% macro outputs() %}
SELECT stay, time, number, item, false AS flagged FROM ({{ within_stay(of("urine"), "r.time", "r.time") }})
{% endmacro %}

{% macro given() %}
SELECT * FROM ({{ paired("vasopressors") }}) UNION ALL SELECT * FROM ({{ paired("fluids") }})
UNION ALL SELECT subject, item, id, time, time, number, NULL, false FROM ({{ of("fluids") }}) WHERE part = 'at'
{% endmacro %}

{# An amount without an end has no interval to be given in. #}
{% macro inputs_metavision() %}
SELECT r.stay, r.start, r.stop, r.item, NULL::DOUBLE AS weight, NULL::VARCHAR AS order_id, false AS cancelled,
    CASE WHEN t.purpose = 'fluids' AND r.stop IS NOT NULL THEN r.said END AS amount,
    CASE WHEN t.purpose = 'vasopressors' THEN r.said END AS rate,
    CASE WHEN t.purpose = 'fluids' THEN t.unit END AS amount_unit,
    CASE WHEN t.purpose = 'vasopressors' THEN t.unit END AS rate_unit, t.purpose
FROM (SELECT i.*, CASE t.number_at WHEN 'end' THEN i.number_at_end ELSE i.number_at_start END AS said
    FROM ({{ within_stay(given(), "coalesce(r.start, r.stop)", "coalesce(r.stop, r.start)") }}) i JOIN {{ treated }} USING (item)) r
JOIN {{ treated }} USING (item)
{% endmacro %}

{% macro procedures() %}
SELECT stay, time, item, false AS cancelled FROM ({{ within_stay(of("ventilation off"), "r.time", "r.time") }})
{% endmacro %}

{% macro prescriptions() %}
SELECT subject, NULL::VARCHAR AS admission, time, true AS time_known FROM ({{ of("antibiotics") }})
{% endmacro %}

{% macro microbiology() %}
SELECT subject, NULL::VARCHAR AS admission, time, NULL::TIMESTAMP AS day FROM ({{ of("cultures") }})
{% endmacro %}
