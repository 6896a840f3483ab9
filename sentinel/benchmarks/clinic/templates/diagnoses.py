"""Diagnoses and procedures: codes, times, counts, ranks, people."""

from sentinel.benchmarks.clinic.templates.base import Template, t


def _pair(
    p: str, table: str, names: str, idiom: str, slot: str, noun: str, did: str, one: str, done: str
) -> tuple[Template, ...]:
    """The templates that diagnoses and procedures share, in their own words."""
    v = "{" + slot + "}"
    return (
        t(
            f"{p}.code", f"{noun}_code", slot,
            f"select icd9_code from {names} where short_title = '{v}'",
            f"what is the icd9 code of {v}?",
            f"which icd9 code does {v} have?",
            f"give the icd9 code for the {noun} {v}.",
            f"under which icd9 code is {v} listed?",
        ),
        t(
            f"{p}.long", f"{noun}_code", slot,
            f"select long_title from {names} where short_title = '{v}'",
            f"what is the long title of {v}?",
            f"which long title does {v} have?",
            f"give the full title of the {noun} {v}.",
            f"what is {v} called in full?",
        ),
        t(
            f"{p}.people", f"{noun}_people", f"{slot} window",
            f"select count(distinct subject_id) from {table} where @{idiom} and @since(charttime)",
            f"how many patients {done} {v} {{window}}?",
            f"count the patients who {done} {v} {{window}}.",
            f"{{window}}, how many patients {done} {v}?",
            f"what is the number of patients that {done} {v} {{window}}?",
        ),
        t(
            f"{p}.people_year", f"{noun}_people", f"{slot} year",
            f"select count(distinct subject_id) from {table} where @{idiom} and @year(charttime)",
            f"how many patients {done} {v} in {{year}}?",
            f"count the patients who {done} {v} in {{year}}.",
            f"in {{year}}, how many patients {done} {v}?",
            f"what is the number of patients that {done} {v} in {{year}}?",
        ),
        t(
            f"{p}.had", f"{noun}_exists", f"patient_{slot} window",
            f"select count(*) > 0 from {table} where subject_id = {{patient}} and @{idiom} "
            "and @since(charttime)",
            f"has patient {{patient}} {did} {v} {{window}}?",
            f"is it true that patient {{patient}} {one} {v} {{window}}?",
            f"{{window}}, has patient {{patient}} {did} {v}?",
            f"is there a record that patient {{patient}} {one} {v} {{window}}?",
        ),
        t(
            f"{p}.first", f"{noun}_time", f"patient_{slot}",
            f"select charttime from {table} where subject_id = {{patient}} and @{idiom} "
            "order by charttime limit 1",
            f"when was the first time patient {{patient}} {one} {v}?",
            f"at what time did patient {{patient}} first get {v} recorded as {noun}?",
            f"give the time of the first {noun} {v} of patient {{patient}}.",
            f"when was {v} first recorded for patient {{patient}}?",
        ),
        t(
            f"{p}.last", f"{noun}_time", f"patient_{slot}",
            f"select charttime from {table} where subject_id = {{patient}} and @{idiom} "
            "order by charttime desc limit 1",
            f"when was the last time patient {{patient}} {one} {v}?",
            f"at what time did patient {{patient}} last get {v} recorded as {noun}?",
            f"give the time of the last {noun} {v} of patient {{patient}}.",
            f"when was {v} last recorded for patient {{patient}}?",
        ),
        t(
            f"{p}.list", f"{noun}_list", "patient",
            f"select short_title from {names} where icd9_code in "
            f"(select icd9_code from {table} where @last)",
            f"which {noun} titles does patient {{patient}} have on the last hospital visit?",
            f"list the {noun} titles of patient {{patient}} on the last visit.",
            f"what are the {noun} names of patient {{patient}} during the most recent visit?",
            f"name every {noun} of patient {{patient}} on the last visit.",
        ),
        t(
            f"{p}.list_first", f"{noun}_list", "patient",
            f"select short_title from {names} where icd9_code in "
            f"(select icd9_code from {table} where @first)",
            f"which {noun} titles does patient {{patient}} have on the first hospital visit?",
            f"list the {noun} titles of patient {{patient}} on the first visit.",
            f"what are the {noun} names of patient {{patient}} during the earliest visit?",
            f"name every {noun} of patient {{patient}} on the first visit.",
        ),
        t(
            f"{p}.count", f"{noun}_count", "patient window",
            f"select count(*) from {table} where subject_id = {{patient}} and @since(charttime)",
            f"how many {noun} records does patient {{patient}} have {{window}}?",
            f"count the {noun} records of patient {{patient}} {{window}}.",
            f"{{window}}, how many {noun} records were made for patient {{patient}}?",
            f"what is the number of {noun} entries of patient {{patient}} {{window}}?",
        ),
        t(
            f"{p}.top", f"{noun}_rank", "k window type",
            f"select short_title from {names} where icd9_code in (select icd9_code from {table} "
            "where hadm_id in (select hadm_id from admissions where admission_type = '{type}') "
            "and @since(charttime) group by icd9_code order by count(*) desc, icd9_code limit {k})",
            f"what are the top {{k}} {noun} titles of {{type}} visits {{window}}?",
            f"list the {{k}} most frequent {noun} titles of {{type}} visits {{window}}.",
            f"{{window}}, which {{k}} {noun} titles were most common on {{type}} visits?",
            f"name the {{k}} most common {noun} titles on {{type}} visits {{window}}.",
        ),
        t(
            f"{p}.join_year", f"{noun}_list", "patient year",
            f"select distinct short_title from {table} join {names} on {table}.icd9_code = "
            f"{names}.icd9_code where subject_id = {{patient}} and @year(charttime)",
            f"which {noun} titles does patient {{patient}} have in {{year}}?",
            f"list the {noun} titles of patient {{patient}} in {{year}}.",
            f"in {{year}}, what are the {noun} names of patient {{patient}}?",
            f"name every {noun} of patient {{patient}} in {{year}}.",
        ),
    )  # fmt: skip


TEMPLATES = (
    *_pair(
        "dx", "diagnoses_icd", "d_icd_diagnoses", "dx", "diagnosis", "diagnosis",
        "been diagnosed with", "was diagnosed with", "were diagnosed with",
    ),
    *_pair(
        "proc", "procedures_icd", "d_icd_procedures", "proc", "procedure", "procedure",
        "undergone", "underwent", "underwent",
    ),
)  # fmt: skip
