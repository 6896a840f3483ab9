"""Intensive care, transfers, cultures."""

from sentinel.benchmarks.clinic.templates.base import t

TEMPLATES = (
    t(
        "icu.count", "icu_count", "icu_patient window",
        "select count(*) from icustays where subject_id = {patient} and @since(intime)",
        "how many icu stays did patient {patient} have {window}?",
        "count the icu stays of patient {patient} {window}.",
        "{window}, how often was patient {patient} in the icu?",
        "what is the number of icu stays of patient {patient} {window}?",
    ),
    t(
        "icu.people", "icu_count", "unit year",
        "select count(distinct subject_id) from icustays where first_careunit = '{unit}' "
        "and @year(intime)",
        "how many patients entered the {unit} in {year}?",
        "count the patients with an icu stay that began in the {unit} in {year}.",
        "in {year}, how many patients came to the {unit} first?",
        "what is the number of patients whose first care unit was {unit} in {year}?",
    ),
    t(
        "icu.unit", "icu_place", "icu_patient",
        "select first_careunit from icustays where subject_id = {patient} "
        "order by intime desc limit 1",
        "what was the first care unit of the last icu stay of patient {patient}?",
        "in which care unit did the last icu stay of patient {patient} begin?",
        "give the first care unit of patient {patient} on the most recent icu stay.",
        "where did patient {patient} start the last icu stay?",
    ),
    t(
        "icu.unit_end", "icu_place", "icu_patient",
        "select last_careunit from icustays where subject_id = {patient} order by intime limit 1",
        "what was the last care unit of the first icu stay of patient {patient}?",
        "in which care unit did the first icu stay of patient {patient} end?",
        "give the last care unit of patient {patient} on the first icu stay.",
        "where did patient {patient} finish the first icu stay?",
    ),
    t(
        "icu.ward", "icu_place", "icu_patient",
        "select last_wardid from icustays where subject_id = {patient} "
        "order by intime desc limit 1",
        "what was the last ward id of the last icu stay of patient {patient}?",
        "in which ward id did the last icu stay of patient {patient} end?",
        "give the last ward id of patient {patient} on the most recent icu stay.",
        "which ward id did patient {patient} have at the end of the last icu stay?",
    ),
    t(
        "icu.in", "icu_time", "icu_patient",
        "select intime from icustays where subject_id = {patient} order by intime limit 1",
        "when did the first icu stay of patient {patient} begin?",
        "when did patient {patient} enter the icu for the first time?",
        "give the start of the first icu stay of patient {patient}.",
        "what is the first icu admission time of patient {patient}?",
    ),
    t(
        "icu.out", "icu_time", "icu_patient",
        "select max(outtime) from icustays where subject_id = {patient}",
        "when did patient {patient} leave the icu for the last time?",
        "what is the last icu discharge time of patient {patient}?",
        "give the time when patient {patient} was last discharged from the icu.",
        "when was the last icu exit of patient {patient}?",
    ),
    t(
        "icu.longest", "icu_length", "icu_patient",
        "select max(julianday(outtime) - julianday(intime)) from icustays "
        "where subject_id = {patient}",
        "how long in days was the longest icu stay of patient {patient}?",
        "what is the maximum length in days of the icu stays of patient {patient}?",
        "give the days of the longest icu stay of patient {patient}.",
        "for how many days was patient {patient} in the icu at most in one stay?",
    ),
    t(
        "icu.mean", "icu_length", "unit year",
        "select avg(julianday(outtime) - julianday(intime)) from icustays "
        "where first_careunit = '{unit}' and @year(intime)",
        "what is the average length in days of {unit} stays begun in {year}?",
        "how long in days was the mean icu stay that began in the {unit} in {year}?",
        "give the average days of icu stays with first care unit {unit} in {year}.",
        "in {year}, how many days did icu stays begun in the {unit} last on average?",
    ),
    t(
        "tr.last", "transfer", "patient",
        "select wardid from transfers where subject_id = {patient} order by intime desc limit 1",
        "what is the last ward id of patient {patient} in the transfers?",
        "in which ward was patient {patient} last, by ward id?",
        "give the most recent ward id of patient {patient}.",
        "to which ward id was patient {patient} last moved?",
    ),
    t(
        "tr.count", "transfer", "patient",
        "select count(*) from transfers where @last and eventtype = 'transfer'",
        "how many transfers did patient {patient} have on the last hospital visit?",
        "count the transfers of patient {patient} on the last visit.",
        "how often was patient {patient} moved during the most recent visit?",
        "what is the number of transfers of patient {patient} on the last visit?",
    ),
    t(
        "tr.units", "transfer", "icu_patient",
        "select distinct careunit from transfers where subject_id = {patient} "
        "and careunit is not null",
        "which care units has patient {patient} been in?",
        "list the care units of patient {patient}.",
        "what are the care units that patient {patient} was moved to?",
        "name every care unit in which patient {patient} stayed.",
    ),
    t(
        "mic.last", "culture_result", "patient_specimen",
        "select org_name from microbiologyevents where subject_id = {patient} and "
        "spec_type_desc = '{specimen}' and org_name is not null order by charttime desc limit 1",
        "what organism was last found in a {specimen} culture of patient {patient}?",
        "which organism was last grown from {specimen} of patient {patient}?",
        "name the organism of the last positive {specimen} culture of patient {patient}.",
        "what was last found in the {specimen} culture of patient {patient}?",
    ),
    t(
        "mic.specimen", "culture_result", "patient_organism",
        "select distinct spec_type_desc from microbiologyevents where subject_id = {patient} "
        "and org_name = '{organism}'",
        "in which specimen types of patient {patient} was {organism} found?",
        "list the specimen types of patient {patient} with {organism}.",
        "which cultures of patient {patient} grew {organism}?",
        "name the specimen types in which patient {patient} had {organism}.",
    ),
    t(
        "mic.time", "culture_time", "patient_organism",
        "select charttime from microbiologyevents where subject_id = {patient} "
        "and org_name = '{organism}' order by charttime limit 1",
        "when was {organism} first found in patient {patient}?",
        "at what time was the first culture with {organism} of patient {patient}?",
        "give the time of the first {organism} culture of patient {patient}.",
        "when did patient {patient} first have {organism}?",
    ),
    t(
        "mic.tested", "culture_time", "patient_specimen",
        "select charttime from microbiologyevents where subject_id = {patient} "
        "and spec_type_desc = '{specimen}' order by charttime desc limit 1",
        "when was the last {specimen} culture of patient {patient}?",
        "at what time was {specimen} last cultured for patient {patient}?",
        "give the time of the most recent {specimen} culture of patient {patient}.",
        "when did patient {patient} last have a {specimen} culture?",
    ),
    t(
        "mic.people", "culture_count", "organism year",
        "select count(distinct subject_id) from microbiologyevents "
        "where org_name = '{organism}' and @year(charttime)",
        "how many patients had {organism} in {year}?",
        "count the patients with a culture of {organism} in {year}.",
        "in {year}, in how many patients was {organism} found?",
        "what is the number of patients with {organism} in {year}?",
    ),
    t(
        "mic.top", "culture_count", "specimen k",
        "select org_name from microbiologyevents where spec_type_desc = '{specimen}' and org_name "
        "is not null group by org_name order by count(*) desc, org_name limit {k}",
        "what are the top {k} organisms in {specimen} cultures?",
        "list the {k} most common organisms found in {specimen}.",
        "which {k} organisms were found most often in {specimen} cultures?",
        "name the {k} most frequent organisms of {specimen} cultures.",
    ),
    t(
        "mic.count", "culture_count", "specimen window",
        "select count(*) from microbiologyevents where spec_type_desc = '{specimen}' "
        "and @since(charttime)",
        "how many {specimen} cultures were taken {window}?",
        "count the {specimen} cultures {window}.",
        "{window}, how many {specimen} cultures were there?",
        "what is the number of {specimen} cultures {window}?",
    ),
)  # fmt: skip
