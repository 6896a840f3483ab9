"""Any sequence encoder by its folder: trained, scored, saved and read back alike, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_episodes import made_episode, made_tasks
from tiny_encoders import FAMILIES, WINDOWS, write_encoder

from sentinel.audit.refits import loop_row, one_fold
from sentinel.errors import UserError
from sentinel.heads.config import CORRECTNESS, HEADS, HeadConfig
from sentinel.heads.encoders import check_encoder, window_of
from sentinel.heads.folds import fit_fold, load_fold
from sentinel.heads.live import LiveHeads
from sentinel.heads.model import head_tokenizer
from sentinel.heads.score import score_tokens
from sentinel.heads.snapshots import Snapshots, build, plan
from sentinel.heads.tokens import tokenize


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    return {family: write_encoder(root / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def snapshots() -> Snapshots:
    tasks = {t["task_id"]: t for t in made_tasks(40)}
    episodes = [made_episode(t) for t in tasks.values()]
    correct = {e.episode_id: "visits" in (e.action or "") for e in episodes}
    return build(episodes, tasks, correct)[0]


def config(folder: Path, **changes: object) -> HeadConfig:
    settings = {
        "encoder": str(folder),
        "pooling": "mean",
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "max_train_tokens": 48,
        "max_score_tokens": 80,
        **changes,
    }
    return HeadConfig.of(settings)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_fit_score_save_and_load_are_equal(
    family: str, folders: dict[str, Path], snapshots: Snapshots, tmp_path: Path
) -> None:
    settings = config(folders[family])
    check_encoder(settings)
    planned = plan(snapshots, CORRECTNESS, 0, validation=0.2)
    found = fit_fold(snapshots, planned, settings, 3, folder=tmp_path / "head")
    assert np.isfinite(found.logits).all()
    assert len(np.unique(found.logits)) > len(found.logits) // 2
    again = fit_fold(snapshots, planned, settings, 3)
    assert np.array_equal(again.logits, found.logits)
    shutil.move(folders[family], tmp_path / "gone")  # a saved head needs its encoder no more
    try:
        model, read = load_fold(tmp_path / "head")
    finally:
        shutil.move(tmp_path / "gone", folders[family])
    assert read == settings
    tokenizer, specials = head_tokenizer(settings)
    tokens = tokenize(tokenizer, snapshots.text[found.rows].tolist())
    loaded = score_tokens(model, tokens, specials, settings.max_score_tokens)[:, 0]
    np.testing.assert_allclose(loaded, found.logits, atol=1e-5)
    live = LiveHeads([model], tokenizer, specials, settings.max_score_tokens)
    one = live.score(snapshots.text[found.rows[0]])
    np.testing.assert_allclose(one, found.logits[:1], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_specials_and_the_end_stay_whatever_the_tokenizers_own_habit(
    family: str, folders: dict[str, Path]
) -> None:
    tokenizer, specials = head_tokenizer(config(folders[family]))
    start, end, pad = {
        "modernbert": ("[CLS]", "[SEP]", "[PAD]"),
        "roberta": ("<s>", "</s>", "<pad>"),
    }.get(family, ("[CLS]", "[SEP]", "[PAD]"))
    ids = tokenizer.token_to_id
    assert (specials.before, specials.after, specials.pad) == ((ids(start),), (ids(end),), ids(pad))
    long, short = "SELECT n FROM visits " * 30 + "WHERE age = 12", "age"
    tokens = tokenize(tokenizer, [long, short])
    assert len(tokens.ids[tokens.starts[0] : tokens.starts[1]]) > 100  # nothing was cut or filled
    batch, mask = tokens.batch(np.array([0, 1]), specials, 20)
    assert batch[0, 0] == ids(start)
    assert batch[0, -1] == ids(end)
    last = tokens.ids[tokens.starts[1] - 18 : tokens.starts[1]]
    assert np.array_equal(batch[0, 1:-1], last)
    assert mask[0].all()
    assert (batch[1][~mask[1]] == ids(pad)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_longer_than_the_encoder_reads_is_refused_at_once(
    family: str, folders: dict[str, Path]
) -> None:
    most = WINDOWS[family]
    check_encoder(config(folders[family], max_score_tokens=most))
    with pytest.raises(UserError, match=f"reads {most} tokens, {most + 1} are configured") as error:
        check_encoder(config(folders[family], max_score_tokens=most + 1))
    assert f"at most {most}" in str(error.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_window_runs(family: str, folders: dict[str, Path]) -> None:
    """The last position of each encoder exists: RoBERTa's begin behind its padding."""
    from sentinel.heads.model import build_model

    settings = config(folders[family], max_score_tokens=WINDOWS[family])
    tokenizer, specials = head_tokenizer(settings)
    model = build_model(settings, tokenizer.get_vocab_size(), specials)
    tokens = tokenize(tokenizer, ["SELECT n FROM visits WHERE age = 12 " * 40])
    assert np.isfinite(score_tokens(model, tokens, specials, WINDOWS[family])).all()
    assert not any(".pooler." in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_without_a_padding_token_is_refused(family: str, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / family, family, pad=False)
    with pytest.raises(UserError, match="no padding token"):
        check_encoder(config(folder))


def test_what_cannot_be_an_encoder_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json in encoder folder"):
        check_encoder(config(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "none-such"}')
    with pytest.raises(UserError, match="cannot be had"):
        check_encoder(config(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(UserError, match="an encoder with a decoder"):
        check_encoder(config(tmp_path))
    mixed = shutil.copytree(folders["modernbert"], tmp_path / "mixed")
    shape = json.loads((mixed / "config.json").read_text())
    (mixed / "config.json").write_text(json.dumps({**shape, "vocab_size": 100}))
    with pytest.raises(UserError, match="embeds 100 tokens, its tokenizer has"):
        check_encoder(config(mixed))


def test_windows_of_published_shapes() -> None:
    import transformers as t

    assert window_of(t.RobertaConfig(max_position_embeddings=514, pad_token_id=1)) == 512
    assert window_of(t.MPNetConfig(max_position_embeddings=514, pad_token_id=1)) == 512
    assert window_of(t.BertConfig()) == window_of(t.DistilBertConfig()) == 512
    assert window_of(t.ModernBertConfig()) == 8192
    assert window_of(t.T5Config()) is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["nano", "tfidf", *FAMILIES])
def test_shuffled_labels_teach_no_encoder_anything(family: str, folders: dict[str, Path]) -> None:
    """Labels permuted over episodes, the same folds, the heads' own training: chance, for both
    heads, within three standard deviations of the mean of per-fold AUROCs; true labels are not."""
    tasks = {t["task_id"]: {**t, "pool": "train"} for t in made_tasks(240, groups=40)}
    for number, task in enumerate(sorted({t["group"] for t in tasks.values()})):
        for row in tasks.values():
            if row["group"] == task:
                row["fold"] = number % 3
    episodes = [made_episode(t) for t in tasks.values()]
    correct = {e.episode_id: "visits" in (e.action or "") for e in episodes}
    made = build(episodes, tasks, correct)[0]
    settings = config(
        folders.get(family, Path("nano")),
        kind="tfidf" if family == "tfidf" else "encoder",
        width=32,
        layers=1,
        epochs=3,
        prefixes=1,
        learning_rate=5e-3,
        max_train_tokens=64,
        max_score_tokens=64,
    )
    for head in HEADS:
        found = {f: one_fold(made, head, f, settings, 5 + f, shuffle=11) for f in range(3)}
        row = loop_row(head, family, found)
        assert row["folds"] == 3
        assert row["missing"] == 0
        assert row["passed"], row
    told = {f: one_fold(made, CORRECTNESS, f, settings, 5 + f) for f in range(3)}
    true = loop_row(CORRECTNESS, family, told)
    assert true["fold_mean"] > true["high"], true
