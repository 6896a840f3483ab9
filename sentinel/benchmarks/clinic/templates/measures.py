"""Laboratory tests, vital signs, fluids in and out."""

from sentinel.benchmarks.clinic.templates.base import Template, t

_LAB = "from labevents where subject_id = {patient} and @lab"
_VITAL = "from chartevents where subject_id = {patient} and @item"


def _series(p: str, noun: str, slots: str, body: str, slot: str) -> tuple[Template, ...]:
    """Values of one patient's series: first, last, nth, extremes, means, times."""
    v = "{" + slot + "}"
    who = "patient {patient}"
    return (
        t(
            f"{p}.last", f"{noun}_value", slots,
            f"select valuenum {body} order by charttime desc limit 1",
            f"what is the last {v} value of {who}?",
            f"what was the most recent {v} of {who}?",
            f"give the latest {v} measured for {who}.",
            f"tell me the {v} of {who} at the last measurement.",
        ),
        t(
            f"{p}.first", f"{noun}_value", slots,
            f"select valuenum {body} order by charttime limit 1",
            f"what is the first {v} value of {who}?",
            f"what was the earliest {v} of {who}?",
            f"give the first {v} measured for {who}.",
            f"tell me the {v} of {who} at the first measurement.",
        ),
        t(
            f"{p}.nth", f"{noun}_value", f"{slots} nth",
            f"select valuenum {body} order by charttime limit 1 offset {{nth}}",
            f"what is the {{nth}} {v} value of {who}?",
            f"what was the {v} of {who} at the {{nth}} measurement?",
            f"give the {{nth}} {v} measured for {who}.",
            f"tell me the {{nth}} {v} result of {who}.",
        ),
        t(
            f"{p}.max", f"{noun}_extreme", f"{slots} window",
            f"select max(valuenum) {body} and @since(charttime)",
            f"what is the highest {v} of {who} {{window}}?",
            f"what was the maximum {v} value of {who} {{window}}?",
            f"{{window}}, what was the highest {v} of {who}?",
            f"give the largest {v} measured for {who} {{window}}.",
        ),
        t(
            f"{p}.min", f"{noun}_extreme", f"{slots} year",
            f"select min(valuenum) {body} and @year(charttime)",
            f"what is the lowest {v} of {who} in {{year}}?",
            f"what was the minimum {v} value of {who} in {{year}}?",
            f"in {{year}}, what was the lowest {v} of {who}?",
            f"give the smallest {v} measured for {who} in {{year}}.",
        ),
        t(
            f"{p}.avg", f"{noun}_mean", f"{slots} window",
            f"select avg(valuenum) {body} and @since(charttime)",
            f"what is the average {v} of {who} {{window}}?",
            f"what was the mean {v} value of {who} {{window}}?",
            f"{{window}}, what was the average {v} of {who}?",
            f"give the mean {v} measured for {who} {{window}}.",
        ),
        t(
            f"{p}.time", f"{noun}_time", slots,
            f"select charttime {body} order by charttime desc limit 1",
            f"when was the last {v} measurement of {who}?",
            f"when was {v} last measured for {who}?",
            f"give the time of the last {v} test of {who}.",
            f"at what time did {who} have the most recent {v} measurement?",
        ),
        t(
            f"{p}.peak", f"{noun}_time", slots,
            f"select charttime {body} order by valuenum desc, charttime limit 1",
            f"when did {who} first have the highest {v} value?",
            f"when was the maximum {v} of {who} first measured?",
            f"give the first time of the peak {v} of {who}.",
            f"at what time was the {v} of {who} at its highest first?",
        ),
        t(
            f"{p}.count", f"{noun}_count", f"{slots} window",
            f"select count(*) {body} and @since(charttime)",
            f"how many {v} measurements does {who} have {{window}}?",
            f"count the {v} tests of {who} {{window}}.",
            f"{{window}}, how many times was {v} measured for {who}?",
            f"what is the number of {v} values of {who} {{window}}?",
        ),
        t(
            f"{p}.unit", f"{noun}_unit", slots,
            f"select distinct valueuom {body}",
            f"in which unit is the {v} of {who} given?",
            f"what is the unit of the {v} values of {who}?",
            f"give the unit of measure of {v} for {who}.",
            f"which unit do the {v} measurements of {who} have?",
        ),
        t(
            f"{p}.change", f"{noun}_change", slots,
            f"select (select valuenum {body} order by charttime desc limit 1) - "
            f"(select valuenum {body} order by charttime limit 1)",
            f"what is the change of {v} of {who} from the first to the last value?",
            f"by how much did the {v} of {who} change between first and last measurement?",
            f"what is the difference between the last and first {v} of {who}?",
            f"give the last {v} of {who} minus the first.",
        ),
        t(
            f"{p}.above", f"{noun}_change", f"{slots}_mid",
            f"select count(*) {body} and valuenum > {{level}}",
            f"how often was the {v} of {who} above {{level}}?",
            f"count the {v} values of {who} over {{level}}.",
            f"how many {v} measurements of {who} were higher than {{level}}?",
            f"what is the number of {v} results of {who} greater than {{level}}?",
        ),
    )  # fmt: skip


def _fluid(
    p: str, table: str, column: str, noun: str, verb: str, slots: str
) -> tuple[Template, ...]:
    """Totals and times of what flows into or out of a patient."""
    body = f"from {table} where subject_id = {{patient}} and @item"
    return (
        t(
            f"{p}.total", "fluid_total", slots,
            f"select sum({column}) {body}",
            f"what is the total {noun} of {{item}} of patient {{patient}}?",
            f"how much {{item}} {verb} patient {{patient}} altogether?",
            f"give the sum of {{item}} {noun} of patient {{patient}}.",
            f"add up the {{item}} {noun} of patient {{patient}}.",
        ),
        t(
            f"{p}.since", "fluid_total", f"{slots} window",
            f"select sum({column}) {body} and @since(charttime)",
            f"what is the total {noun} of {{item}} of patient {{patient}} {{window}}?",
            f"how much {{item}} {verb} patient {{patient}} {{window}}?",
            f"give the sum of {{item}} {noun} of patient {{patient}} {{window}}.",
            f"{{window}}, what was the total {{item}} {noun} of patient {{patient}}?",
        ),
        t(
            f"{p}.time", "fluid_time", slots,
            f"select charttime {body} order by charttime desc limit 1",
            f"when was the last {{item}} {noun} of patient {{patient}}?",
            f"when was {{item}} {noun} last recorded for patient {{patient}}?",
            f"give the time of the most recent {{item}} {noun} of patient {{patient}}.",
            f"at what time did patient {{patient}} last have {{item}} {noun}?",
        ),
    )  # fmt: skip


TEMPLATES = (
    *_series("lab", "lab", "patient_lab", _LAB, "lab"),
    *_series("vital", "vital", "patient_vital", _VITAL, "item"),
    t(
        "lab.people", "lab_people", "lab window",
        "select count(distinct subject_id) from labevents where @lab and @since(charttime)",
        "how many patients had a {lab} test {window}?",
        "count the patients whose {lab} was measured {window}.",
        "{window}, how many patients were tested for {lab}?",
        "what is the number of patients with a {lab} measurement {window}?",
    ),
    t(
        "lab.mean_year", "lab_people", "lab year",
        "select avg(valuenum) from labevents where @lab and @year(charttime)",
        "what is the average {lab} of all patients in {year}?",
        "what was the mean {lab} value in the hospital in {year}?",
        "in {year}, what was the average {lab} over all patients?",
        "give the mean of every {lab} measurement of {year}.",
    ),
    t(
        "lab.list", "lab_list", "patient",
        "select distinct label from labevents join d_labitems on labevents.itemid = "
        "d_labitems.itemid where @last",
        "which lab tests did patient {patient} have on the last hospital visit?",
        "list the lab tests of patient {patient} on the last visit.",
        "what are the lab tests done for patient {patient} during the most recent visit?",
        "name every lab test of patient {patient} on the last visit.",
    ),
    t(
        "lab.list_since", "lab_list", "patient window",
        "select distinct label from labevents join d_labitems on labevents.itemid = "
        "d_labitems.itemid where subject_id = {patient} and @since(charttime)",
        "which lab tests did patient {patient} have {window}?",
        "list the lab tests of patient {patient} {window}.",
        "{window}, what lab tests were done for patient {patient}?",
        "name every lab test of patient {patient} {window}.",
    ),
    *_fluid("in", "inputevents_cv", "amount", "intake", "was given to", "patient_input"),
    *_fluid("out", "outputevents", "value", "output", "came out of", "patient_output"),
)  # fmt: skip
