"""Hospital visits: times, counts, length, attributes, populations."""

from sentinel.benchmarks.clinic.templates.base import Template, t

_ATTRIBUTES = (
    ("insurance", "insurance", "insurance", "visit_attribute"),
    ("marital_status", "marital", "marital status", "visit_attribute"),
    ("language", "language", "language", "visit_attribute"),
    ("ethnicity", "ethnicity", "ethnicity", "visit_attribute"),
    ("admission_type", "type", "admission type", "visit_route"),
    ("admission_location", "from", "admission location", "visit_route"),
    ("discharge_location", "to", "discharge location", "visit_route"),
)


def _attribute(column: str, short: str, words: str, family: str) -> Template:
    known = f" and {column} is not null" if column == "discharge_location" else ""
    return t(
        f"adm.{short}", family, "patient",
        f"select {column} from admissions where subject_id = {{patient}}{known} "
        "order by admittime desc limit 1",
        f"what is the {words} of patient {{patient}} on the last hospital visit?",
        f"tell me the {words} of patient {{patient}} at the last visit.",
        f"give the {words} recorded for patient {{patient}} on the most recent visit.",
        f"which {words} did patient {{patient}} have on the last visit?",
    )  # fmt: skip


_POPULATION = (("insurance", "insurance"), ("language", "language"), ("ethnicity", "ethnicity"))

TEMPLATES = (
    *(_attribute(*words) for words in _ATTRIBUTES),
    *(
        t(
            f"adm.people_{short}", "population", f"{short} year",
            f"select count(distinct subject_id) from admissions where {column} = '{{{short}}}' "
            "and @year(admittime)",
            f"how many patients with {column} {{{short}}} were admitted in {{year}}?",
            f"count the patients of {column} {{{short}}} admitted in {{year}}.",
            f"in {{year}}, how many patients with {column} {{{short}}} came to the hospital?",
            f"what is the number of patients with {column} {{{short}}} seen in {{year}}?",
        )
        for column, short in _POPULATION
    ),
    t(
        "adm.people_type", "population", "type window",
        "select count(distinct subject_id) from admissions where admission_type = '{type}' "
        "and @since(admittime)",
        "how many patients had an {type} admission {window}?",
        "count the patients admitted as {type} {window}.",
        "{window}, how many patients came by {type} admission?",
        "what is the number of patients with an {type} admission {window}?",
    ),
    t(
        "adm.count", "visit_count", "patient",
        "select count(*) from admissions where subject_id = {patient}",
        "how many times was patient {patient} admitted?",
        "count the hospital visits of patient {patient}.",
        "what is the number of admissions of patient {patient}?",
        "how many hospital visits does patient {patient} have?",
    ),
    t(
        "adm.count_since", "visit_count", "patient window",
        "select count(*) from admissions where subject_id = {patient} and @since(admittime)",
        "how many times was patient {patient} admitted {window}?",
        "count the hospital visits of patient {patient} {window}.",
        "{window}, how many admissions did patient {patient} have?",
        "what is the number of visits of patient {patient} {window}?",
    ),
    t(
        "adm.exists_year", "visit_count", "patient year",
        "select count(*) > 0 from admissions where subject_id = {patient} and @year(admittime)",
        "was patient {patient} admitted in {year}?",
        "did patient {patient} come to the hospital in {year}?",
        "has patient {patient} had a hospital visit in {year}?",
        "is there an admission of patient {patient} in {year}?",
    ),
    t(
        "adm.first", "visit_time", "patient",
        "select admittime from admissions where subject_id = {patient} order by admittime limit 1",
        "when was patient {patient} first admitted?",
        "what is the time of the first admission of patient {patient}?",
        "when did patient {patient} come to the hospital for the first time?",
        "give the first admission time of patient {patient}.",
    ),
    t(
        "adm.last", "visit_time", "patient",
        "select admittime from admissions where subject_id = {patient} "
        "order by admittime desc limit 1",
        "when was patient {patient} last admitted?",
        "what is the time of the last admission of patient {patient}?",
        "when did patient {patient} come to the hospital for the last time?",
        "give the most recent admission time of patient {patient}.",
    ),
    t(
        "adm.nth", "visit_time", "patient nth",
        "select admittime from admissions where subject_id = {patient} "
        "order by admittime limit 1 offset {nth}",
        "when was patient {patient} admitted for the {nth} time?",
        "what is the time of the {nth} admission of patient {patient}?",
        "when did the {nth} hospital visit of patient {patient} begin?",
        "give the {nth} admission time of patient {patient}.",
    ),
    t(
        "adm.discharge", "visit_time", "patient",
        "select max(dischtime) from admissions where subject_id = {patient}",
        "when was patient {patient} last discharged?",
        "what is the last discharge time of patient {patient}?",
        "when did patient {patient} leave the hospital for the last time?",
        "give the time of the most recent discharge of patient {patient}.",
    ),
    t(
        "adm.first_year", "visit_time", "patient year",
        "select admittime from admissions where subject_id = {patient} and @year(admittime) "
        "order by admittime limit 1",
        "when was patient {patient} first admitted in {year}?",
        "what is the time of the first admission of patient {patient} in {year}?",
        "in {year}, when did patient {patient} first come to the hospital?",
        "give the first admission time of patient {patient} in {year}.",
    ),
    t(
        "adm.days", "stay_length", "patient",
        "select cast(julianday(dischtime) - julianday(admittime) as integer) from admissions "
        "where subject_id = {patient} and dischtime is not null order by admittime desc limit 1",
        "how many days did the last finished visit of patient {patient} take?",
        "what was the length in days of the last finished stay of patient {patient}?",
        "for how many days was patient {patient} in hospital on the last finished visit?",
        "count the days of the last finished hospital stay of patient {patient}.",
    ),
    t(
        "adm.longest", "stay_length", "patient",
        "select max(cast(julianday(dischtime) - julianday(admittime) as integer)) from admissions "
        "where subject_id = {patient}",
        "how many days did the longest visit of patient {patient} take?",
        "what was the length in days of the longest stay of patient {patient}?",
        "for how many days was patient {patient} in hospital at most in one visit?",
        "count the days of the longest hospital stay of patient {patient}.",
    ),
    t(
        "adm.mean_days", "stay_length", "insurance year",
        "select avg(julianday(dischtime) - julianday(admittime)) from admissions "
        "where insurance = '{insurance}' and @year(admittime)",
        "what is the average stay in days of {insurance} visits that began in {year}?",
        "how long in days was the mean visit with {insurance} insurance begun in {year}?",
        "for {insurance} insurance, what is the mean length of stay of visits of {year}?",
        "give the average number of days of visits under {insurance} insurance begun in {year}.",
    ),
    t(
        "adm.mean_age", "age", "type year",
        "select avg(age) from admissions where admission_type = '{type}' and @year(admittime)",
        "what is the average age at {type} admissions in {year}?",
        "how old on average were patients at {type} admissions in {year}?",
        "give the mean age of {type} admissions in {year}.",
        "in {year}, what was the average age on {type} admission?",
    ),
    t(
        "adm.max_age", "age", "insurance year",
        "select max(age) from admissions where insurance = '{insurance}' and @year(admittime)",
        "what is the highest age among {insurance} admissions in {year}?",
        "how old was the oldest person admitted with {insurance} insurance in {year}?",
        "give the maximum age of admissions with {insurance} insurance in {year}.",
        "in {year}, what was the greatest age at a {insurance} admission?",
    ),
    t(
        "adm.older", "age", "years gender",
        "select count(distinct subject_id) from admissions where age > {years} and subject_id in "
        "(select subject_id from patients where gender = '{gender}')",
        "how many {gender} patients were older than {years} at an admission?",
        "count the {gender} patients admitted at an age over {years}.",
        "what is the number of {gender} patients above {years} years on admission?",
        "how many {gender} patients came to the hospital when older than {years}?",
    ),
    t(
        "adm.now_since", "current", "inpatient",
        "select admittime from admissions where subject_id = {patient} and dischtime is null",
        "when did the current visit of patient {patient} begin?",
        "since when has patient {patient} been in hospital now?",
        "what is the admission time of the current stay of patient {patient}?",
        "give the start of the ongoing visit of patient {patient}.",
    ),
    t(
        "adm.now_days", "current", "inpatient",
        "select cast(julianday(current_time) - julianday(admittime) as integer) from admissions "
        "where subject_id = {patient} and dischtime is null",
        "for how many days has patient {patient} been in hospital now?",
        "how many days has the current visit of patient {patient} taken so far?",
        "count the days since the current visit of patient {patient} began.",
        "how many days ago was the current stay of patient {patient} started?",
    ),
    t(
        "adm.readmitted", "readmission", "patient",
        "select cast(julianday(max(admittime)) - julianday(min(admittime)) as integer) "
        "from admissions where subject_id = {patient}",
        "how many days lie between the first and last admission of patient {patient}?",
        "count the days from the first to the last admission of patient {patient}.",
        "how many days after the first admission was patient {patient} last admitted?",
        "give the days between the earliest and latest admission of patient {patient}.",
    ),
    t(
        "adm.often", "readmission", "insurance window times",
        "select count(*) from (select subject_id from admissions where insurance = '{insurance}' "
        "and @since(admittime) group by subject_id having count(*) >= {times})",
        "how many patients were admitted at least {times} times with {insurance} {window}?",
        "count the patients with {times} or more {insurance} visits {window}.",
        "{window}, how many patients had at least {times} admissions with {insurance}?",
        "what is the number of patients with {times} or more {insurance} visits {window}?",
    ),
)  # fmt: skip
