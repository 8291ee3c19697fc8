-- One row for each stay. Lists keep the order of the chart. A drug that is charted again adds nothing.
WITH drugs AS (
    SELECT 'medrecon' AS source, stay_id, gsn, name, charttime AS t, 0 AS a, 0 AS b FROM medrecon
    UNION ALL
    SELECT 'pyxis', stay_id, gsn, name, charttime, try_cast(med_rn AS INT), try_cast(gsn_rn AS INT) FROM pyxis
), once AS (
    SELECT source, stay_id, gsn, trim(name) AS name, min((t, a, b)) AS place FROM drugs GROUP BY ALL
), lists AS (
    SELECT source, stay_id, list([gsn, name] ORDER BY place, gsn, name) AS codes FROM once GROUP BY source, stay_id
), codes AS (
    SELECT stay_id, list([icd_version, icd_code, icd_title] ORDER BY try_cast(seq_num AS INT)) AS billing
    FROM diagnosis GROUP BY stay_id
)
SELECT s.row, s.stay_id, s.gender, s.arrival_transport, s.disposition,
       s.intime, try_cast(s.intime AS TIMESTAMP) AS time,
       try_cast(p.anchor_age AS INT) + year(try_cast(s.intime AS TIMESTAMP)) - try_cast(p.anchor_year AS INT) AS age,
       t.chiefcomplaint, t.temperature, t.heartrate, t.resprate, t.o2sat, t.sbp, t.pain, t.acuity,
       h.codes AS history, d.codes AS dispensed, c.billing
FROM edstays s
LEFT JOIN (SELECT DISTINCT ON (stay_id) * FROM triage ORDER BY stay_id, row) t USING (stay_id)
LEFT JOIN (SELECT DISTINCT ON (subject_id) * FROM patients ORDER BY subject_id, row) p USING (subject_id)
LEFT JOIN lists h ON h.stay_id = s.stay_id AND h.source = 'medrecon'
LEFT JOIN lists d ON d.stay_id = s.stay_id AND d.source = 'pyxis'
LEFT JOIN codes c ON c.stay_id = s.stay_id
ORDER BY try_cast(s.stay_id AS BIGINT), s.stay_id, s.row
