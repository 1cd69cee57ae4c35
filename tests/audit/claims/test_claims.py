"""Claims re-scored: the numbers of the specification to its digits, verdicts, refusals, the PDF."""

import io
import math
from pathlib import Path

import pypdf
import pytest
from typer.testing import CliRunner

from fedaudit.audit.claims.claim import NoiseTarget, load
from fedaudit.audit.claims.report import pdf
from fedaudit.audit.claims.scores import compute_recovery_rate, noise_for, rescore
from fedaudit.audit.cli.main import app
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.claims import digits
from fedaudit.reports.result import ClaimOutcome, ClaimRecord, Severity
from tests.audit.claims.made import BASE, made, upper

FOLDER = Path(__file__).parents[3] / "configs" / "claims"


def shipped(name: str, identity: str) -> ClaimRecord:
    (claim,) = [c for c in load(FOLDER / name).claims if c.id == identity]
    return rescore(claim)


def close(found: float | None, *printed: str) -> bool:
    """To the last digit that the specification prints, which may be rounded either way."""
    (text,) = printed
    digits_after = len(text.partition("e")[0].partition(".")[2])
    power = int(text.partition("e")[2] or 0)
    step = 10.0 ** (power - digits_after)
    return found is not None and abs(found - float(text)) <= 1.000001 * step


def test_fedrs_agrees_with_the_specification_to_its_digits() -> None:
    claim = shipped("fedrs.yaml", "fedrs")
    expected = {
        0: ("2.3178", "133.14", "1103.06", "3.1075"),
        1: ("4.3772", "160.74", "1189.78", "4.8448"),
        2: ("20464", "4.05e6", "4.00e7", "621.5"),
        3: ("80929.5", "1.617e7", "1.600e8", "1243"),
        4: ("81705", "1.618e7", "1.601e8", "1938"),
    }
    for number, printed in expected.items():
        found = claim.rows[number]
        for value, text in zip([*found.epsilon, found.formula], printed, strict=True):
            assert close(value, text), (found.name, value, text)
    measured = claim.rows[5]
    assert close(measured.epsilon[0], "91.0") and close(measured.epsilon[1], "1.36e4")
    assert [n[-1] for n in claim.needed] == ["0.0826", "33.04", "469.6", "790.6"]
    assert claim.severity is Severity.CRITICAL and claim.outcome is ClaimOutcome.REFUTED
    assert claim.empirical == 90.9  # a lower bound is rounded down
    broken = [c.text for c in claim.conditions if c.status == "contradicted"]
    assert len(broken) == 7 and "The sensitivity is enforced" in broken


@pytest.mark.nightly
def test_fedrs_with_sampling_agrees_with_the_specification() -> None:
    claim = shipped("fedrs.yaml", "fedrs-sampled")
    expected = ["27.389", "39.589", "27.845", "40.173", "37.45", "4.213", "4.813"]
    assert len(claim.sampled) == len(expected)
    for found, text in zip(claim.sampled, expected, strict=True):
        assert close(found.epsilon[0], text), (found.name, found.epsilon, text)
    lower = claim.sampled[4].lower
    assert lower is not None and 27.7 < lower <= 27.8445 and claim.sampled[4].how == "WOR-PLD"


def test_gandalf_agrees_with_the_specification_to_its_digits() -> None:
    claim = shipped("gandalf.yaml", "gandalf-weights")
    expected = [
        ("5.0004265e9", "1.0000603e10", "2.000027e11", "4.0000381e11", "4.845e5"),
        ("5.0042648e7", "1.0006e8", "2.00027e9", "4.00038e9", "4.845e4"),
        ("504264", "1.00603e6", "2.0027e7", "4.0038e7", "4845"),
        ("5425.5", "10602", "202696", "403814", "484.5"),
        ("91.82", "159.44", "2268.8", "4380.5", "48.4"),
        ("4.3772", "6.5730", "46.21", "77.33", "4.84"),
    ]
    for found, printed in zip(claim.rows, expected, strict=True):
        for value, text in zip([*found.epsilon, found.formula], printed, strict=True):
            assert close(value, text), (found.name, value, text)
    needed = [float(n[-1]) for n in claim.needed]
    assert needed == pytest.approx([3.73, 23.59, 33.37, 0.600, 3.796, 5.369], abs=6e-3)


def test_label_distributions_and_counts_agree_with_the_specification() -> None:
    labels = shipped("gandalf.yaml", "gandalf-labels")
    expected = [(0.318, 17.7, 0.733), (1.592, 2.574, 0.176), (0.003184, 50653, 1.0), (0.01592, 2239.5, 1.0)]
    for found, (z, epsilon, again) in zip(labels.rows[1:], expected, strict=True):
        assert found.multiplier == pytest.approx(z, rel=2e-3)
        assert found.epsilon[0] == pytest.approx(epsilon, rel=1e-3)
        assert found.recovered == pytest.approx(again, abs=6e-4)
    assert labels.severity is Severity.MEDIUM and "next to nothing at a delta of 0.9" in labels.verdict
    assert "it costs 17.7" in labels.verdict and upper(labels) == 0.0
    counts = shipped("class_counts.yaml", "class-counts")
    clear = counts.rows[0]
    assert clear.epsilon == [math.inf] and clear.recovered == 1.0
    expected = [
        (91.82, 159.44, 1.0),
        (24.38, 39.38, 0.9545),
        (9.997, 15.46, 0.6827),
        (4.377, 6.573, 0.3829),
        (1.993, 2.943, 0.1974),
        (1.000, 1.465, 0.1066),
        (0.7255, 1.0608, 0.0797),
    ]
    for number, (removed, replaced, again) in enumerate(expected):
        first, second = counts.rows[1 + 2 * number], counts.rows[2 + 2 * number]
        assert first.epsilon[0] == pytest.approx(removed, rel=3e-4)
        assert second.epsilon[0] == pytest.approx(replaced, rel=4e-4)
        assert first.recovered == second.recovered == pytest.approx(again, abs=6e-5)


def test_prototypes_agree_with_the_specification() -> None:
    claim = shipped("no_dp.yaml", "prototypes")
    for found, text in zip(claim.rows, ("20852", "284.4", "24.38", "1.555"), strict=True):
        assert close(found.epsilon[0], text)
    assert [n[-1] for n in claim.needed] == ["0.7461", "10.55"]
    assert upper(shipped("no_dp.yaml", "updates-in-clear")) == math.inf


def test_the_noise_that_would_do_does() -> None:
    target = NoiseTarget(epsilon=2.0, delta=1e-6, sensitivity=3.0, releases=25)
    sigma = noise_for(target)
    kept, broken = (
        rescore(
            made(
                promise={"epsilon": 2.0 * (1 + 1e-6), "delta": 1e-6},
                releases={"25": 25},
                settings=[{"name": "x", "role": "actual", "noise": noise, "sensitivity": 3.0}],
            )
        )
        for noise in (sigma, 0.99 * sigma)
    )
    assert kept.outcome is ClaimOutcome.HOLDS and broken.outcome is ClaimOutcome.REFUTED
    assert compute_recovery_rate(0.0, 1.0) == 1.0 and compute_recovery_rate(1e9, 1.0) < 1e-8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"theorem": "magic"}, "theorem must be 'none', 'classical' or 'central_limit'"),
        ({"settings": []}, "settings"),
        ({"settings": [{"name": "x", "noise": 1, "sensitivity": 1}]}, "a setting of role claimed or actual"),
        ({"settings": [{"name": "x", "role": "actual", "noise": 1, "rho": 1}]}, "one of noise and rho"),
        ({"settings": [{"name": "x", "role": "actual", "rho": 1, "rate": 0.5}]}, "say how it samples"),
        (
            {"settings": [{"name": "x", "role": "actual", "rho": 1, "sampling": "shuffle", "rate": 0.7}]},
            "batches",
        ),
        (
            {"settings": [{"name": "x", "role": "actual", "rho": 1, "batches": 2}]},
            "batches with sampling: shuffle",
        ),
        (
            {"settings": [{"name": "x", "role": "actual", "epsilon": 1, "records": 20, "tuned": {"mean": 10}}]},
            "one of records and tuned: what they cost together is not computed",
        ),
        (
            {"settings": [{"name": "x", "role": "actual", "rho": 1, "tuned": {"mean": 10}}]},
            "randomized response noise with tuned: what gaussian costs so is not computed",
        ),
        ({"promise": {"epsilon": 1, "finite": True}}, "a number or be finite"),
        ({"settings": [{"name": "x", "role": "actual", "noise": -1, "sensitivity": 1}]}, "noise must be >= 0"),
        ({"promise": {"epsilon": 0, "delta": 0.1}}, "epsilon must be > 0"),
        ({"claim": "x"}, "claims[0].claim"),
    ],
)
def test_a_claim_that_cannot_be_read_is_refused_by_its_key(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    import yaml

    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"title": "t", "claims": [BASE | change]}))
    with pytest.raises(UserError) as error:
        load(path)
    assert said in str(error.value)


def test_the_pdf_has_an_overview_with_verdicts_and_a_page_a_claim() -> None:
    claims = [rescore(c) for n in ("gandalf.yaml", "local_noise.yaml") for c in load(FOLDER / n).claims]
    pages = [p.extract_text() for p in pypdf.PdfReader(io.BytesIO(pdf("Claims", claims, ""))).pages]
    first = " ".join(pages[0].split())
    assert "Verdict" in first and "holds under its assumptions" in first and "cannot be decided" in first
    assert "6 verdicts: 1 holds under its assumptions, 4 refuted, 1 cannot be decided" in first
    for claim in claims:
        [page] = [p for p in pages[1:] if claim.title.split(":")[-1] in p and "Verdict" in p]
        assert "contradicted" in page
    assert "5.0004265e9" in "".join(pages)


@pytest.mark.nightly
def test_the_command_writes_a_pdf_and_a_table(tmp_path: Path) -> None:
    out = tmp_path / "made" / "claims.pdf"
    done = CliRunner().invoke(app, ["dp", "claims", str(FOLDER / "class_counts.yaml"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_bytes().startswith(b"%PDF") and "class-counts: Cannot be decided" in done.output
    assert "1 verdict: 0 holds under its assumptions, 0 refuted, 1 cannot be decided" in done.output
    missing = CliRunner().invoke(app, ["dp", "claims", str(tmp_path / "none.yaml")])
    assert missing.exit_code == 2 and "no file" in missing.output


def test_digits_are_those_of_the_tables() -> None:
    found = [digits(v) for v in (2.31779, 133.139, 80929.6, 4046620.0, 40020807.0, 5.0004265e9, math.inf, 0.0)]
    assert found == ["2.31779", "133.139", "80,929.6", "4,046,620", "4.0020807e7", "5.0004265e9", "infinite", "0"]
