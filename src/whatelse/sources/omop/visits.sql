-- One row for each emergency visit. The drug types (38000178, 32830, 44787730, 32865) are entries of medication lists and
-- what a patient reports.
WITH named AS (
    SELECT d.*, c.vocabulary_id, c.concept_code, c.concept_name, i.names
    FROM drug_exposure d LEFT JOIN concept c ON c.concept_id = d.drug_concept_id
    LEFT JOIN (
        SELECT descendant_concept_id AS id, string_agg(DISTINCT a.concept_name, '-' ORDER BY a.concept_name) AS names
        FROM concept_ancestor JOIN concept a ON a.concept_id = ancestor_concept_id
        WHERE a.concept_class_id = 'Ingredient' AND a.vocabulary_id LIKE 'RxNorm%' GROUP BY 1
    ) i ON i.id = d.drug_concept_id
), here AS (
    SELECT visit_occurrence_id, list([vocabulary_id, concept_code, concept_name, names, drug_source_value]) AS given
    FROM named WHERE drug_type_concept_id IS NULL OR drug_type_concept_id NOT IN (38000178, 32830, 44787730, 32865) GROUP BY 1
), home AS (
    SELECT v.visit_occurrence_id, list([vocabulary_id, concept_code, concept_name, names, drug_source_value]) AS home
    FROM visit_occurrence v JOIN named d ON d.person_id = v.person_id AND (
        (d.visit_occurrence_id = v.visit_occurrence_id AND drug_type_concept_id IN (38000178, 32830, 44787730, 32865))
        OR (d.visit_occurrence_id IS DISTINCT FROM v.visit_occurrence_id
            AND d.drug_exposure_start_date < v.visit_start_date
            AND coalesce(d.drug_exposure_end_date, d.drug_exposure_start_date + 30) >= v.visit_start_date))
    GROUP BY 1
), ill AS (
    SELECT o.*, [[s.vocabulary_id, s.concept_code, s.concept_name], [c.vocabulary_id, c.concept_code, c.concept_name],
                 [NULL, condition_source_value, NULL]] AS codes
    FROM condition_occurrence o LEFT JOIN concept c ON c.concept_id = o.condition_concept_id
    LEFT JOIN concept s ON s.concept_id = o.condition_source_concept_id
), billed AS (SELECT visit_occurrence_id, list(codes) AS billing FROM ill GROUP BY 1
), before AS (
    SELECT v.visit_occurrence_id, list(codes) AS problems
    FROM visit_occurrence v JOIN ill o ON o.person_id = v.person_id
        AND o.visit_occurrence_id IS DISTINCT FROM v.visit_occurrence_id AND o.condition_start_date < v.visit_start_date
        AND (o.condition_end_date IS NULL OR o.condition_end_date >= v.visit_start_date) GROUP BY 1
), signs AS (
    SELECT visit_occurrence_id, list([sign, value::VARCHAR]) AS signs FROM (
        SELECT m.visit_occurrence_id, w.sign,
               arg_min(m.value_as_number, coalesce(m.measurement_datetime, m.measurement_date)) AS value
        FROM measurement m JOIN concept c ON c.concept_id = m.measurement_concept_id AND c.vocabulary_id = 'LOINC'
        JOIN wanted w ON w.loinc = c.concept_code WHERE m.value_as_number IS NOT NULL GROUP BY 1, 2) GROUP BY 1
), said AS (
    SELECT visit_occurrence_id, list([c.concept_code, value_as_string]) AS said
    FROM observation JOIN concept c ON c.concept_id = observation_concept_id AND c.vocabulary_id = 'LOINC'
    WHERE value_as_string IS NOT NULL GROUP BY 1
), written AS (
    SELECT visit_occurrence_id,
           list([c.concept_code, c.concept_name, note_title, note_text]
                ORDER BY coalesce(note_datetime, note_date), note_id) AS notes
    FROM note n LEFT JOIN concept c ON c.concept_id = n.note_class_concept_id GROUP BY 1
)
SELECT v.*, p.gender_concept_id, p.year_of_birth, p.month_of_birth, p.day_of_birth,
       given, home, billing, problems, signs, said, notes
FROM (SELECT DISTINCT ON (visit_occurrence_id) * FROM visit_occurrence) v
LEFT JOIN (SELECT DISTINCT ON (person_id) * FROM person) p USING (person_id)
LEFT JOIN here USING (visit_occurrence_id) LEFT JOIN home USING (visit_occurrence_id)
LEFT JOIN billed USING (visit_occurrence_id) LEFT JOIN before USING (visit_occurrence_id)
LEFT JOIN signs USING (visit_occurrence_id) LEFT JOIN said USING (visit_occurrence_id)
LEFT JOIN written USING (visit_occurrence_id)
ORDER BY v.visit_occurrence_id
