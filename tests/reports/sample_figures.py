"""Figures and galleries of the sample result."""

import base64
import io

import numpy as np
from PIL import Image

from fedaudit.attacks.evidence import Series
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.result import Figure


def png(seed: int, side: int = 16, blur: int = 0) -> str:
    """A small grey image, PNG in base64: a bright disc whose place depends on the seed."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:side, :side] / side
    cx, cy = rng.uniform(0.3, 0.7, 2)
    image = np.exp(-((((xx - cx) ** 2 + (yy - cy) ** 2) ** 0.5 - 0.22) ** 2) / (0.004 * (1 + blur)))
    image = np.clip(image + 0.05 * blur * rng.standard_normal((side, side)), 0, 1)
    out = io.BytesIO()
    Image.fromarray((255 * image).astype(np.uint8), mode="L").save(out, format="PNG")
    return base64.b64encode(out.getvalue()).decode()


def figures() -> list[Figure]:
    fpr = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
    n = [1.0, 2.0, 5.0, 10.0]
    rank = [0.784, 0.641, 0.402, 0.211]
    return [
        Figure(
            id="upcnn-dose",
            finding="upcnn",
            title="Fewer examples, better reconstruction",
            caption="Rank-1 match by the number of examples behind a prototype, with 95 % "
            "intervals. The curve meets the baseline above about ten examples.",
            alt="Line chart: rank-1 match falls from 78 % at one example to 21 % at ten; the "
            "blind class mean stays at 10 %.",
            x_label="examples behind the prototype",
            y_label="rank-1 match",
            x_log=True,
            series=[
                Series(name="UpCNN", x=n, y=rank, low=[r - 0.06 for r in rank], high=[r + 0.06 for r in rank]),
                Series(name="UpCNN, shifted auxiliary data", x=n, y=[0.6 * r for r in rank]),
                Series(name="class mean", x=[1.0], y=[0.102], blind=True),
                Series(name="_hidden $name", x=n, y=[0.09, 0.1, 0.095, 0.1], blind=True),
            ],
        ),
        Figure(
            id="lira-roc",
            finding="lira",
            kind="roc",
            title="Membership",
            caption="True against false positives, both axes logarithmic.",
            alt="ROC curve on log axes; the attack runs along the diagonal of chance.",
            x_label="false-positive rate",
            y_label="true-positive rate",
            series=[
                Series(name="LiRA", x=fpr, y=[0.0012, 0.0035, 0.012, 0.034, 0.11, 0.32, 1.0]),
                Series(name="chance", x=fpr, y=fpr, blind=True),
            ],
        ),
        Figure(
            id="budget-rounds",
            kind="bar",
            title="Budget spent by round",
            caption="Upper bound towards the public after so many rounds.",
            alt="Bar chart: epsilon grows from 0.9 after 10 rounds to 2.4 after 50.",
            x_label="rounds",
            y_label="epsilon at most",
            series=[
                Series(name="PLD", x=[10, 30, 50], y=[0.9, 1.8, 2.4], low=[0.8, 1.7, 2.3], high=[1.0, 1.9, 2.5]),
                Series(name="without sampling", x=[10, 30, 50], y=[1.4, 2.9, 3.8], blind=True),
            ],
        ),
        Figure(
            id="training-drift",
            title="Client drift",
            caption="Distance of local from global prototypes; it settles after round 20.",
            alt="Line chart: drift falls from 1.0 to 0.02.",
            x_label="round",
            y_label="mean squared distance",
            y_log=True,
            series=[Series(name="drift", x=[0, 10, 20, 30, 40], y=[1.0, 0.2, 0.05, 0.03, 0.02])],
        ),
    ]


def galleries() -> list[Gallery]:
    return [
        Gallery(
            finding="upcnn",
            title="What the server sees",
            caption="Top row: training images. Middle: what the attack rebuilt from one prototype "
            "each. Bottom: the best a baseline can do. Compare the rows by column.",
            alt="Twelve training images above their reconstructions, which show the same disc in "
            "the same place, above a class mean that does not.",
            columns=[f"client {i}" for i in range(12)],
            rows={
                "original": [png(i) for i in range(12)],
                "reconstruction": [png(i, blur=3) for i in range(12)],
                "class mean (blind)": [png(99, blur=1)] * 12,
            },
        )
    ]
