"""Curves of a fit for TensorBoard, beside the numbers in `metrics.jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class EventLog:
    """TensorBoard's event files of one fit; opened with its first epoch.

    Called with each epoch's record and the losses of its batches. Steps are counted on over
    epochs, so that a fit that goes on after a kill continues its curve.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._writer: Any = None

    def __call__(self, record: dict[str, Any], losses: list[float]) -> None:
        """Write one epoch."""
        if self._writer is None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(self.folder))
        epoch = int(record["epoch"])
        for name, value in record.items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, epoch)
        for at, loss in enumerate(losses, start=(epoch - 1) * len(losses) + 1):
            self._writer.add_scalar("batch_loss", loss, at)
        self._writer.flush()

    def close(self) -> None:
        """Finish the files."""
        if self._writer is not None:
            self._writer.close()
