"""Tables of the audit: what is asked of the train pool, out-of-fold, besides the heads' scores."""

from __future__ import annotations

from sentinel.tables.schema import BOOL, FLOAT, INT, STRING, WHERE, Table, exact, maybe, numeric

AUDIT = Table(
    "audit",
    ("benchmark", "agent", "check", "target", "variant"),
    {
        **WHERE,
        "check": exact(STRING, "head, question-only, transcript, telemetry, shuffled-tfidf, …"),
        "target": exact(STRING, "correctness, answerability or '-'"),
        "variant": exact(STRING, "the score, permutation or seed, or '-'"),
        "value": numeric(FLOAT, "pooled out-of-fold AUROC, a count, or a standard deviation"),
        "fold_mean": numeric(FLOAT, "mean of the per-fold AUROCs, the statistic of a control"),
        "low": numeric(FLOAT, "2.5 % end of `value`; of a control, where `fold_mean` may lie"),
        "high": numeric(FLOAT, "97.5 % end, or the band's upper end"),
        "n": exact(INT, "episodes"),
        "positives": exact(INT, "of those, correct (correctness) or unanswerable (answerability)"),
        "missing": exact(INT, "episodes without this score, left out"),
        "folds": exact(INT, "folds that hold both classes"),
        "passed": maybe(BOOL, "of a check that can fail; null where it cannot, or was not run"),
        "note": maybe(STRING, "why there is no value: off, not run, undefined; or what was found"),
    },
)

FEATURE_SCREEN = Table(
    "feature_screen",
    ("benchmark", "agent", "kind", "name"),
    {
        **WHERE,
        "kind": exact(STRING, "feature (with the head), hybrid (all ten), family (left out)"),
        "name": exact(STRING, "of the feature or family, or 'all'"),
        "delta": numeric(FLOAT, "AUROC of `model` less that of `base`"),
        "low": numeric(FLOAT, "2.5 % percentile over templates; null without an interval"),
        "high": numeric(FLOAT, "97.5 % percentile"),
        "auroc_base": numeric(FLOAT, "of the head; for a family, of the hybrid"),
        "auroc_model": numeric(FLOAT, "of the second-level model, out-of-fold"),
        "n": exact(INT, "answered, answerable train episodes"),
        "positives": exact(INT, "of those, correct"),
        "missing": exact(INT, "episodes in which (some of) the features are missing"),
        "clusters": exact(INT, "groups"),
        "resamples": exact(INT, "kept resamples"),
        "dropped": exact(INT, "resamples without both classes"),
        "survivor": maybe(BOOL, "the lower end is above 0; null where there is no interval"),
        "note": maybe(STRING, "why it is off or undefined"),
    },
)

AUDIT_LOGITS = Table(
    "audit_logits",
    ("benchmark", "agent", "check", "target", "variant", "episode_id"),
    {
        **WHERE,
        "check": exact(STRING, "shuffled-loop or seeds"),
        "target": exact(STRING, "correctness or answerability"),
        "variant": exact(STRING, "permutation or seed"),
        "episode_id": exact(STRING, "an eligible train episode"),
        "fold": exact(INT, "the fold it lies in; its head was fitted on the others"),
        "positive": exact(BOOL, "the label it is read by, permuted or not"),
        "logit": numeric(FLOAT, "at T; null where the head could not be fitted"),
    },
)
"""What the training loop said, per fold: an inner table, of parts only."""
