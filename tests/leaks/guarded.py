"""Planted leaks at a site's guard: what it says of each; python -m tests.leaks --guard prints it.

Every upload of a leaking federation, and of the honest one beside it, is checked as its site would check it.
"""

import tempfile
from pathlib import Path

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.guard import Alarm, Outgoing, check_outgoing
from fedaudit.audit.phases.execute import execute
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from tests.leaks.runs import LEAKS, config

HONEST = "the upload is an honest one: what tells is who else is in a sum"
NETWORK = "whether it is true can be seen with the network alone, which a guard is not given"
COMPUTED = "a guard looks for examples, not for what was computed from them"
UNSEEN = {  # leak -> why a guard lets it through
    "features of one image": NETWORK,
    "outputs on one image": NETWORK,
    "label in a loss": NETWORK,
    "label as a cluster": NETWORK,
    "sums that differ by one": HONEST,
    "gradient of a last batch": NETWORK,
    "momentum of five images": NETWORK,
    "one output among means": NETWORK,
    "embedding of the hardest": NETWORK,
    "quantiles of losses": NETWORK,
    "accuracy on a tenth": NETWORK,
    "checkpoint before the hardest": NETWORK,
    "hashes of images": COMPUTED,
    "histogram of the last": COMPUTED,
    "running mean of the last": COMPUTED,
    "alarm of a rare class": COMPUTED,
    "cost of labels": COMPUTED,
    "filter of images": COMPUTED,
    "perceptual hashes": COMPUTED,
}


def check_all(name: str, honest: bool = False) -> tuple[list[Alarm], int]:
    """Alarms about the uploads of all clients in all rounds, and how many uploads there were."""
    with tempfile.TemporaryDirectory() as folder:
        run, settings = RunDir.create(Path(folder) / "run"), config(LEAKS[name], honest, 0.1)
        execute(run, settings, ("simulate",), lambda *_: None, skip_finished=True)
        case, sent = open_case(run, settings), list(read(run.artifacts))
    models = {a.round: a.payload for a in sent if a.kind == Kind.GLOBAL_MODEL and a.channel == Channel.DOWNLINK}
    uploads: dict[tuple[int, int], list[Artifact]] = {}
    for a in sent:
        if a.channel in (Channel.UPLINK, Channel.RELAY) and a.sender.index is not None:
            uploads.setdefault((a.round, a.sender.index), []).append(a)
    alarms = []
    for (t, k), parts in uploads.items():
        rows = case.examples.parts[k]
        own = Arrays(x=case.data.train.x[rows], y=case.data.train.y[rows])
        line = {"sender": f"client/{k}", "round": t, "sha256": ""}
        alarms += check_outgoing(Outgoing(line=line, parts=parts, received=models.get(t, {})), own)
    return alarms, len(uploads)
