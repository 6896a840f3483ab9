"""Patients: who they are, births, deaths."""

from sentinel.benchmarks.clinic.templates.base import t

TEMPLATES = (
    t(
        "pat.gender", "demographics", "patient",
        "select gender from patients where subject_id = {patient}",
        "what is the gender of patient {patient}?",
        "is patient {patient} male or female?",
        "tell me the sex of patient {patient}.",
        "patient {patient} is of which gender?",
    ),
    t(
        "pat.dob", "demographics", "patient",
        "select dob from patients where subject_id = {patient}",
        "what is the date of birth of patient {patient}?",
        "when was patient {patient} born?",
        "give the birth date of patient {patient}.",
        "on which day was patient {patient} born?",
    ),
    t(
        "pat.age", "demographics", "patient",
        "select age from admissions where subject_id = {patient} order by admittime desc limit 1",
        "how old was patient {patient} at the last admission?",
        "what was the age of patient {patient} on the last admission?",
        "tell me how old patient {patient} was when last admitted.",
        "at the most recent admission, what was the age of patient {patient}?",
    ),
    t(
        "pat.born", "births", "gender birth",
        "select count(*) from patients where gender = '{gender}' "
        "and strftime('%Y', dob) > '{birth}'",
        "how many {gender} patients were born after {birth}?",
        "count the {gender} patients with a birth year later than {birth}.",
        "what is the number of {gender} patients born after the year {birth}?",
        "number of {gender} patients whose birth year is after {birth}?",
    ),
    t(
        "pat.sameyear", "births", "birth",
        "select count(*) from patients where strftime('%Y', dob) = '{birth}'",
        "how many patients were born in {birth}?",
        "count the patients whose birth year is {birth}.",
        "what is the number of patients born in the year {birth}?",
        "number of patients with birth year {birth}?",
    ),
    t(
        "pat.dod", "death", "dead",
        "select dod from patients where subject_id = {patient}",
        "when did patient {patient} die?",
        "what is the date of death of patient {patient}?",
        "on which day did patient {patient} pass away?",
        "give the time of death of patient {patient}.",
    ),
    t(
        "pat.lived", "death", "dead",
        "select cast(julianday(dod) - julianday(dob) as integer) from patients "
        "where subject_id = {patient}",
        "how many days did patient {patient} live?",
        "how many days lie between birth and death of patient {patient}?",
        "count the days of life of patient {patient}.",
        "for how many days was patient {patient} alive?",
    ),
    t(
        "pat.deaths", "death", "gender window",
        "select count(*) from patients where gender = '{gender}' and @since(dod)",
        "how many {gender} patients died {window}?",
        "count the deaths of {gender} patients {window}.",
        "what is the number of {gender} patients who died {window}?",
        "{window}, how many {gender} patients have died?",
    ),
    t(
        "pat.deathyear", "death", "gender year",
        "select count(*) from patients where gender = '{gender}' and @year(dod)",
        "how many {gender} patients died in {year}?",
        "count the {gender} patients who passed away in {year}.",
        "in {year}, how many {gender} patients died?",
        "what is the number of deaths of {gender} patients in {year}?",
    ),
)  # fmt: skip
