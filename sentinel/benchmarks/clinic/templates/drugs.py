"""Prescriptions: drugs, doses, routes, times, ranks."""

from sentinel.benchmarks.clinic.templates.base import t

TEMPLATES = (
    t(
        "rx.people", "drug_people", "drug window",
        "select count(distinct subject_id) from prescriptions where drug = '{drug}' "
        "and @since(startdate)",
        "how many patients were prescribed {drug} {window}?",
        "count the patients who got {drug} {window}.",
        "{window}, how many patients received a prescription of {drug}?",
        "what is the number of patients that were given {drug} {window}?",
    ),
    t(
        "rx.times_year", "drug_people", "drug year",
        "select count(*) from prescriptions where drug = '{drug}' and @year(startdate)",
        "how many times was {drug} prescribed in {year}?",
        "count the prescriptions of {drug} in {year}.",
        "in {year}, how many prescriptions of {drug} were there?",
        "what is the number of {drug} prescriptions in {year}?",
    ),
    t(
        "rx.had", "drug_exists", "patient_drug window",
        "select count(*) > 0 from prescriptions where subject_id = {patient} and drug = '{drug}' "
        "and @since(startdate)",
        "has patient {patient} been prescribed {drug} {window}?",
        "did patient {patient} get {drug} {window}?",
        "{window}, was {drug} prescribed to patient {patient}?",
        "is there a prescription of {drug} for patient {patient} {window}?",
    ),
    t(
        "rx.had_last", "drug_exists", "patient_drug",
        "select count(*) > 0 from prescriptions where @last and drug = '{drug}'",
        "was patient {patient} prescribed {drug} on the last hospital visit?",
        "did patient {patient} get {drug} during the last visit?",
        "on the last visit, was {drug} prescribed to patient {patient}?",
        "is there a prescription of {drug} for patient {patient} on the most recent visit?",
    ),
    t(
        "rx.first", "drug_time", "patient_drug",
        "select startdate from prescriptions where subject_id = {patient} and drug = '{drug}' "
        "order by startdate limit 1",
        "when was patient {patient} first prescribed {drug}?",
        "when did patient {patient} get {drug} for the first time?",
        "what is the time of the first {drug} prescription of patient {patient}?",
        "give the start of the first prescription of {drug} for patient {patient}.",
    ),
    t(
        "rx.last", "drug_time", "patient_drug",
        "select startdate from prescriptions where subject_id = {patient} and drug = '{drug}' "
        "order by startdate desc limit 1",
        "when was patient {patient} last prescribed {drug}?",
        "when did patient {patient} get {drug} for the last time?",
        "what is the time of the last {drug} prescription of patient {patient}?",
        "give the start of the last prescription of {drug} for patient {patient}.",
    ),
    t(
        "rx.stop", "drug_time", "patient_drug",
        "select max(enddate) from prescriptions where subject_id = {patient} and drug = '{drug}'",
        "when did the last {drug} prescription of patient {patient} end?",
        "what is the last end date of {drug} for patient {patient}?",
        "when was {drug} last stopped for patient {patient}?",
        "give the latest end of a {drug} prescription of patient {patient}.",
    ),
    t(
        "rx.dose", "drug_detail", "patient_drug",
        "select dose_val_rx from prescriptions where subject_id = {patient} and drug = '{drug}' "
        "order by startdate desc limit 1",
        "what was the last dose of {drug} prescribed to patient {patient}?",
        "which dose of {drug} did patient {patient} get last?",
        "give the dose of the last {drug} prescription of patient {patient}.",
        "how much {drug} was patient {patient} last prescribed?",
    ),
    t(
        "rx.route", "drug_detail", "patient_drug",
        "select route from prescriptions where subject_id = {patient} and drug = '{drug}' "
        "order by startdate desc limit 1",
        "by which route was {drug} last given to patient {patient}?",
        "what was the route of the last {drug} prescription of patient {patient}?",
        "how was {drug} taken by patient {patient} the last time?",
        "give the last route of {drug} for patient {patient}.",
    ),
    t(
        "rx.unit", "drug_detail", "patient_drug",
        "select dose_unit_rx from prescriptions where subject_id = {patient} and drug = '{drug}' "
        "order by startdate desc limit 1",
        "what is the dose unit of the last {drug} prescription of patient {patient}?",
        "in which unit was {drug} last dosed for patient {patient}?",
        "give the unit of the last dose of {drug} of patient {patient}.",
        "which dose unit was used for {drug} of patient {patient} last?",
    ),
    t(
        "rx.list", "drug_list", "patient",
        "select distinct drug from prescriptions where @last",
        "which drugs was patient {patient} prescribed on the last hospital visit?",
        "list the drugs of patient {patient} on the last visit.",
        "what are the drugs given to patient {patient} during the most recent visit?",
        "name every drug of patient {patient} on the last visit.",
    ),
    t(
        "rx.list_route", "drug_list", "patient route",
        "select distinct drug from prescriptions where subject_id = {patient} "
        "and route = '{route}'",
        "which drugs did patient {patient} get by route {route}?",
        "list the {route} drugs of patient {patient}.",
        "what are the drugs given to patient {patient} by route {route}?",
        "name every drug that patient {patient} took by the {route} route.",
    ),
    t(
        "rx.list_now", "drug_list", "inpatient",
        "select distinct drug from prescriptions where @now",
        "which drugs was patient {patient} prescribed on the current visit?",
        "list the drugs of patient {patient} on the current hospital visit.",
        "what are the drugs given to patient {patient} in the ongoing visit?",
        "name every drug of patient {patient} in the present visit.",
    ),
    t(
        "rx.count", "drug_count", "patient window",
        "select count(distinct drug) from prescriptions where subject_id = {patient} "
        "and @since(startdate)",
        "how many different drugs was patient {patient} prescribed {window}?",
        "count the distinct drugs of patient {patient} {window}.",
        "{window}, how many different drugs did patient {patient} get?",
        "what is the number of different drugs given to patient {patient} {window}?",
    ),
    t(
        "rx.count_last", "drug_count", "patient",
        "select count(*) from prescriptions where @last",
        "how many prescriptions did patient {patient} get on the last hospital visit?",
        "count the prescriptions of patient {patient} on the last visit.",
        "on the last visit, how many prescriptions were written for patient {patient}?",
        "what is the number of prescriptions of patient {patient} during the most recent visit?",
    ),
    t(
        "rx.top", "drug_rank", "k window route",
        "select drug from prescriptions where route = '{route}' and @since(startdate) "
        "group by drug order by count(*) desc, drug limit {k}",
        "what are the top {k} {route} drugs {window}?",
        "list the {k} most often prescribed {route} drugs {window}.",
        "{window}, which {k} drugs of route {route} were prescribed most?",
        "name the {k} most common {route} drugs {window}.",
    ),
    t(
        "rx.most", "drug_rank", "year route",
        "select drug from prescriptions where route = '{route}' and @year(startdate) "
        "group by drug order by count(*) desc, drug limit 1",
        "what was the most common {route} drug in {year}?",
        "in {year}, which {route} drug was prescribed most often?",
        "name the {route} drug with the most prescriptions in {year}.",
        "which drug of route {route} was the most frequent in {year}?",
    ),
)  # fmt: skip
