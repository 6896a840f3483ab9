"""All question templates and unanswerable topics of the clinic, in a stable order."""

from sentinel.benchmarks.clinic.templates import (
    cohorts,
    costs,
    diagnoses,
    drugs,
    measures,
    patients,
    topics,
    visits,
    wards,
)
from sentinel.benchmarks.clinic.templates.base import Template, Topic

TEMPLATES: tuple[Template, ...] = (
    *patients.TEMPLATES,
    *visits.TEMPLATES,
    *diagnoses.TEMPLATES,
    *drugs.TEMPLATES,
    *measures.TEMPLATES,
    *wards.TEMPLATES,
    *costs.TEMPLATES,
    *cohorts.TEMPLATES,
)
TOPICS: tuple[Topic, ...] = topics.TOPICS

__all__ = ["TEMPLATES", "TOPICS", "Template", "Topic"]
