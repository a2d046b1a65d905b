{# Stays with age, sex, readmission and outcome; a later rule adds the weight. #}
{% set passes = ["stays", "patients", "admissions"] %}
{% set intermediate = true %}
{% set figures = {
    "stays listed": "SELECT count(*) FROM raw_stays",
    "subjects listed": "SELECT count(DISTINCT subject) FROM raw_stays",
} %}

{# MIMIC and eICU hide higher ages; this is their median in MIMIC-III. #}
{% set AGE_OVER_89 = 91.4 %}

{% macro age() %}
{% if release == "eICU" %}
CASE WHEN trim(i.said_age) LIKE '>%' THEN {{ AGE_OVER_89 }} ELSE TRY_CAST(i.said_age AS DOUBLE) END
{% elif release == "MIMIC-IV" %}
CASE WHEN p.anchor_age >= 90 THEN {{ AGE_OVER_89 }} ELSE p.anchor_age + year(i.intime) - p.anchor_year END
{% else %}
{% set years = "(epoch(i.intime) - epoch(p.born)) / (365.2425 * 86400)" %}
{# Birthdays of people over 89 are shifted by about 300 years. #}
CASE WHEN {{ years }} > 150 THEN {{ AGE_OVER_89 }} ELSE {{ years }} END
{% endif %}
{% endmacro %}

{% macro rows() %}
SELECT *, 'stays' AS kind,
    CASE WHEN stay IS NULL OR subject IS NULL THEN 'no stay'
        WHEN intime IS NULL OR outtime IS NULL THEN 'no time'
        WHEN outtime <= intime THEN 'negative or no duration'
        WHEN copy > 1 THEN 'duplicate'
        WHEN age IS NULL OR female IS NULL THEN 'no such patient, or no age or sex' END AS reason
FROM (
    SELECT i.*, {{ "'metavision'" if release == "MIMIC-IV" else "lower(i.source)" }} AS origin, {{ age() }} AS age,
        p.gender = 'F' AS female, a.died = 1 AS died_in_hospital,
        row_number() OVER (PARTITION BY i.stay ORDER BY i.intime, i.outtime) AS copy,
        {{ "i.earlier" if release == "eICU" else "min(i.intime) OVER (PARTITION BY i.subject) < i.intime" }} AS readmission
    FROM raw_stays i
    LEFT JOIN (SELECT DISTINCT ON (subject) * FROM raw_patients ORDER BY ALL) p USING (subject)
    LEFT JOIN (SELECT DISTINCT ON (admission) * FROM raw_admissions ORDER BY ALL) a USING (admission)
)
{% endmacro %}

{% macro table() %}
SELECT stay, subject, admission, intime, (epoch(outtime) - epoch(intime)) / 3600 AS hours,
    age::DOUBLE AS age, female, readmission, died_in_hospital, origin AS source
FROM admitted_rows WHERE reason IS NULL ORDER BY stay
{% endmacro %}
