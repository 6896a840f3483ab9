"""Costs of visits, patients, drugs, tests, procedures and diagnoses."""

from sentinel.benchmarks.clinic.templates.base import Template, t


def _price(p: str, kind: str, table: str, where: str, slot: str, words: str) -> Template:
    return t(
        f"cost.{p}", "cost_item", f"{slot} year",
        f"select avg(cost) from cost where event_type = '{kind}' and event_id in "
        f"(select row_id from {table} where {where}) and @year(chargetime)",
        f"what was the average cost of {words} in {{year}}?",
        f"how much did {words} cost on average in {{year}}?",
        f"in {{year}}, what was the mean price of {words}?",
        f"give the mean cost charged for {words} in {{year}}.",
    )  # fmt: skip


TEMPLATES = (
    _price("drug", "prescriptions", "prescriptions", "drug = '{drug}'", "drug", "the drug {drug}"),
    _price("lab", "labevents", "labevents", "@lab", "lab", "a {lab} test"),
    _price(
        "proc", "procedures_icd", "procedures_icd", "@proc", "procedure",
        "the procedure {procedure}",
    ),
    _price(
        "dx", "diagnoses_icd", "diagnoses_icd", "@dx", "diagnosis", "the diagnosis {diagnosis}"
    ),
    t(
        "cost.last", "cost_visit", "patient",
        "select sum(cost) from cost where @last",
        "what is the total cost of the last hospital visit of patient {patient}?",
        "how much did the last visit of patient {patient} cost?",
        "give the sum of all costs of patient {patient} on the last visit.",
        "what was charged in total for the most recent visit of patient {patient}?",
    ),
    t(
        "cost.first", "cost_visit", "patient",
        "select sum(cost) from cost where @first",
        "what is the total cost of the first hospital visit of patient {patient}?",
        "how much did the first visit of patient {patient} cost?",
        "give the sum of all costs of patient {patient} on the first visit.",
        "what was charged in total for the earliest visit of patient {patient}?",
    ),
    t(
        "cost.max_visit", "cost_visit", "patient",
        "select max(total) from (select sum(cost) as total from cost where subject_id = {patient} "
        "group by hadm_id)",
        "what is the cost of the most expensive visit of patient {patient}?",
        "how much did the dearest hospital visit of patient {patient} cost?",
        "give the highest total cost of a visit of patient {patient}.",
        "what was charged for the costliest visit of patient {patient}?",
    ),
    t(
        "cost.since", "cost_patient", "patient window",
        "select sum(cost) from cost where subject_id = {patient} and @since(chargetime)",
        "what is the total cost of patient {patient} {window}?",
        "how much did patient {patient} cost {window}?",
        "{window}, what was charged in total for patient {patient}?",
        "give the sum of the costs of patient {patient} {window}.",
    ),
    t(
        "cost.kind", "cost_patient", "patient kind",
        "select sum(cost) from cost where subject_id = {patient} and event_type = '{kind}'",
        "what is the total cost of all {kind} of patient {patient}?",
        "how much did the {kind} of patient {patient} cost altogether?",
        "give the sum of the costs of {kind} of patient {patient}.",
        "what was charged in total for the {kind} of patient {patient}?",
    ),
    t(
        "cost.dearest", "cost_patient", "patient year",
        "select max(cost) from cost where subject_id = {patient} and @year(chargetime)",
        "what is the highest single cost of patient {patient} in {year}?",
        "how much was the most expensive charge of patient {patient} in {year}?",
        "in {year}, what was the largest charge of patient {patient}?",
        "give the maximum cost charged to patient {patient} in {year}.",
    ),
    t(
        "cost.insurance", "cost_total", "insurance year",
        "select sum(cost) from cost join admissions on cost.hadm_id = admissions.hadm_id "
        "where insurance = '{insurance}' and @year(chargetime)",
        "what is the total cost of {insurance} visits in {year}?",
        "how much did visits with {insurance} insurance cost in {year}?",
        "in {year}, what was charged in total for {insurance} insurance?",
        "give the sum of the costs under {insurance} insurance in {year}.",
    ),
    t(
        "cost.total_kind", "cost_total", "kind window",
        "select sum(cost) from cost where event_type = '{kind}' and @since(chargetime)",
        "what is the total cost of all {kind} in the hospital {window}?",
        "how much did the hospital charge for {kind} {window}?",
        "{window}, what was the sum of all {kind} costs?",
        "give the total hospital cost of {kind} {window}.",
    ),
)  # fmt: skip
