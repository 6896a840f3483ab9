"""Questions over several tables: same visit, survival, cohorts of a diagnosis."""

from sentinel.benchmarks.clinic.templates.base import t

TEMPLATES = (
    t(
        "co.drug", "cohort_count", "diagnosis drug",
        "select count(distinct subject_id) from prescriptions where drug = '{drug}' and @ill",
        "how many patients with {diagnosis} were ever prescribed {drug}?",
        "count the patients diagnosed with {diagnosis} who got {drug}.",
        "what is the number of {diagnosis} patients that were given {drug}?",
        "among patients with {diagnosis}, how many received {drug}?",
    ),
    t(
        "co.gender", "cohort_count", "diagnosis gender",
        "select count(*) from patients where gender = '{gender}' and @ill",
        "how many {gender} patients have ever had {diagnosis}?",
        "count the {gender} patients diagnosed with {diagnosis}.",
        "what is the number of {gender} {diagnosis} patients?",
        "among patients with {diagnosis}, how many are {gender}?",
    ),
    t(
        "co.icu", "cohort_count", "diagnosis unit",
        "select count(distinct subject_id) from icustays where first_careunit = '{unit}' and @ill",
        "how many patients with {diagnosis} were ever in the {unit}?",
        "count the patients diagnosed with {diagnosis} who entered the {unit}.",
        "what is the number of {diagnosis} patients that came to the {unit}?",
        "among patients with {diagnosis}, how many had an icu stay begun in the {unit}?",
    ),
    t(
        "co.insurance", "cohort_count", "diagnosis insurance",
        "select count(distinct subject_id) from admissions where insurance = '{insurance}' "
        "and @illvisit",
        "how many patients had {diagnosis} on a visit with {insurance} insurance?",
        "count the {insurance} insurance patients diagnosed with {diagnosis} on that visit.",
        "what is the number of patients with {diagnosis} on a {insurance} visit?",
        "on {insurance} visits, how many patients had {diagnosis}?",
    ),
    t(
        "co.age", "cohort_mean", "diagnosis year",
        "select avg(age) from admissions where @illvisit and @year(admittime)",
        "what is the average age on visits with {diagnosis} in {year}?",
        "how old on average were patients admitted in {year} with {diagnosis}?",
        "in {year}, what was the mean age of admissions with {diagnosis}?",
        "give the average age at admissions of {year} that had {diagnosis}.",
    ),
    t(
        "co.stay", "cohort_mean", "diagnosis type",
        "select avg(julianday(dischtime) - julianday(admittime)) from admissions "
        "where admission_type = '{type}' and @illvisit",
        "what is the average stay in days of {type} visits with {diagnosis}?",
        "how long in days was the mean {type} visit with {diagnosis}?",
        "give the mean length in days of {type} admissions that had {diagnosis}.",
        "on {type} visits, how many days did patients with {diagnosis} stay on average?",
    ),
    t(
        "co.cost", "cohort_mean", "diagnosis year",
        "select avg(total) from (select sum(cost) as total from cost where @illvisit "
        "and @year(chargetime) group by hadm_id)",
        "what is the average total cost of visits with {diagnosis} in {year}?",
        "how much did a visit with {diagnosis} cost on average in {year}?",
        "in {year}, what was the mean total cost of visits with {diagnosis}?",
        "give the average of the total visit costs with {diagnosis} in {year}.",
    ),
    t(
        "co.lab", "cohort_mean", "diagnosis lab",
        "select avg(valuenum) from labevents where @lab and @illvisit",
        "what is the average {lab} on visits with {diagnosis}?",
        "what was the mean {lab} of patients during visits with {diagnosis}?",
        "give the mean {lab} value over all visits that had {diagnosis}.",
        "on visits with {diagnosis}, what was the average {lab}?",
    ),
    t(
        "co.died", "survival", "diagnosis gender",
        "select count(*) from patients where gender = '{gender}' and dod is not null and @ill",
        "how many {gender} patients with {diagnosis} have died?",
        "count the deaths among {gender} patients diagnosed with {diagnosis}.",
        "what is the number of {gender} {diagnosis} patients who died?",
        "among {gender} patients with {diagnosis}, how many are dead?",
    ),
    t(
        "co.died_proc", "survival", "procedure",
        "select count(*) from patients where dod is not null and subject_id in "
        "(select subject_id from procedures_icd where @proc)",
        "how many patients who underwent {procedure} have died?",
        "count the deaths among patients that had {procedure}.",
        "what is the number of {procedure} patients who died?",
        "among patients with {procedure}, how many are dead?",
    ),
    t(
        "co.survived", "survival", "diagnosis months",
        "select count(distinct diagnoses_icd.subject_id) from diagnoses_icd join patients on "
        "diagnoses_icd.subject_id = patients.subject_id where @dx "
        "and dod <= datetime(charttime, '{months}')",
        "how many patients died within {months} of a diagnosis of {diagnosis}?",
        "count the patients who died no later than {months} after having {diagnosis}.",
        "within {months} after {diagnosis}, how many patients died?",
        "what is the number of deaths within {months} of {diagnosis}?",
    ),
    t(
        "co.days", "survival", "dead_diagnosis",
        "select cast(julianday((select dod from patients where subject_id = {patient})) - "
        "julianday(charttime) as integer) from diagnoses_icd where subject_id = {patient} and @dx "
        "order by charttime limit 1",
        "how many days did patient {patient} live after the first diagnosis of {diagnosis}?",
        "how many days after first having {diagnosis} did patient {patient} die?",
        "for how many days did patient {patient} survive the first {diagnosis} diagnosis?",
        "count the days from the first {diagnosis} of patient {patient} to death.",
    ),
    t(
        "co.with_drug", "same_visit", "diagnosis k",
        "select drug from prescriptions where @illvisit group by drug "
        "order by count(*) desc, drug limit {k}",
        "what are the top {k} drugs on visits with {diagnosis}?",
        "list the {k} most common drugs prescribed in the same visit as {diagnosis}.",
        "which {k} drugs were given most often on visits with {diagnosis}?",
        "name the {k} most frequent drugs during visits that had {diagnosis}.",
    ),
    t(
        "co.with_proc", "same_visit", "diagnosis k",
        "select short_title from d_icd_procedures where icd9_code in (select icd9_code from "
        "procedures_icd where @illvisit group by icd9_code order by count(*) desc, icd9_code "
        "limit {k})",
        "what are the top {k} procedures on visits with {diagnosis}?",
        "list the {k} most common procedures done in the same visit as {diagnosis}.",
        "which {k} procedures were done most often on visits with {diagnosis}?",
        "name the {k} most frequent procedures during visits that had {diagnosis}.",
    ),
    t(
        "co.drug_proc", "same_visit", "drug procedure",
        "select count(distinct subject_id) from prescriptions where drug = '{drug}' and hadm_id in "
        "(select hadm_id from procedures_icd where @proc)",
        "how many patients got {drug} and {procedure} in the same visit?",
        "count the patients with {drug} and {procedure} during one visit.",
        "in the same visit as {procedure}, how many patients were prescribed {drug}?",
        "what is the number of patients given {drug} on a visit with {procedure}?",
    ),
    t(
        "co.patient_drug", "same_visit", "patient_diagnosis",
        "select distinct drug from prescriptions where subject_id = {patient} and @illvisit",
        "which drugs did patient {patient} get on visits with {diagnosis}?",
        "list the drugs of patient {patient} in the same visit as {diagnosis}.",
        "what was patient {patient} prescribed on visits that had {diagnosis}?",
        "name every drug given to patient {patient} during a visit with {diagnosis}.",
    ),
    t(
        "co.lab_drug", "same_visit", "patient_drug lab",
        "select max(valuenum) from labevents where subject_id = {patient} and @lab and hadm_id in "
        "(select hadm_id from prescriptions where drug = '{drug}')",
        "what is the highest {lab} of patient {patient} on visits with {drug}?",
        "what was the maximum {lab} of patient {patient} in the same visit as {drug}?",
        "give the peak {lab} of patient {patient} during a visit with {drug}.",
        "on visits with {drug}, what was the highest {lab} of patient {patient}?",
    ),
    t(
        "co.top_dx", "cohort_rank", "ethnicity k",
        "select short_title from d_icd_diagnoses where icd9_code in (select icd9_code from "
        "diagnoses_icd where hadm_id in (select hadm_id from admissions where ethnicity = "
        "'{ethnicity}') group by icd9_code order by count(*) desc, icd9_code limit {k})",
        "what are the top {k} diagnoses of {ethnicity} patients?",
        "list the {k} most common diagnoses among patients of ethnicity {ethnicity}.",
        "which {k} diagnoses did {ethnicity} patients have most often?",
        "name the {k} most frequent diagnoses of {ethnicity} patients.",
    ),
    t(
        "co.top_patient", "cohort_rank", "year k",
        "select subject_id from cost where @year(chargetime) group by subject_id "
        "order by sum(cost) desc, subject_id limit {k}",
        "what are the ids of the top {k} patients by total cost in {year}?",
        "list the {k} patients with the highest costs in {year}.",
        "in {year}, which {k} patients cost the most?",
        "name the ids of the {k} most expensive patients in {year}.",
    ),
)  # fmt: skip
