"""What every measure is: its words, unit and direction, and which of them tell a reader most.

The rows stand in the order of "most telling first", which tables, comparisons and sentences go by. Evidence
whose measure has no row here, or another unit or direction, is refused when it is made.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_NBSP = "\u00a0"  # a number and its unit stay on one line


@dataclass(frozen=True, kw_only=True)
class Measure:
    name: str  # as attacks, policies and audit.json write it
    words: str  # within a sentence
    unit: str = "fraction"  # "fraction", "index", "dB", ...; a fraction is printed as percent
    higher_is_worse: bool = True
    curve: bool = False  # drawn against the number of samples behind an artifact


_F1, _F01 = f"1{_NBSP}% FPR", f"0.1{_NBSP}% FPR"
MEASURES = {
    row.name: row
    for row in (
        # whose it is: the record, then the person or client
        Measure(name="rank1", words="rank-1", curve=True),
        Measure(name="extracted_at_fpr_0.01", words=f"extracted at {_F1}"),
        Measure(name="linkage_rank1", words="linkage rank-1", curve=True),
        Measure(name="tpr_at_fpr_0.01", words=f"TPR at {_F1}", curve=True),
        Measure(name="auc", words="AUC", curve=True),
        Measure(name="any_member_first", words="any member first"),
        Measure(name="property_auc", words="property AUC"),
        Measure(name="count_exact_match", words="count exact match"),
        Measure(name="label_set_exact_match", words="label set exact match"),
        Measure(name="majority_class", words="majority class"),
        Measure(name="size_known", words="number of examples known"),
        Measure(name="prototype_recovered", words="prototype recovered"),
        Measure(name="copies_flagged", words="copies flagged"),
        Measure(name="copied_share", words="copied share"),
        Measure(name="class_recognised", words="class recognised"),
        Measure(name="exact_match", words="exact match"),  # for an attack of your own
        Measure(name="asr", words="attack success rate"),
        Measure(name="accuracy", words="accuracy", higher_is_worse=False),
        # what compromised clients do to the model
        Measure(name="accuracy_drop", words="accuracy drop"),
        Measure(name="worst_class_drop", words="worst class drop"),
        Measure(name="cost_of_defence", words="cost of defence"),
        Measure(name="changed_by_counts", words="share of answers changed by claimed counts", unit="index"),
        Measure(name="malicious_found", words="malicious clients found", higher_is_worse=False),
        Measure(name="honest_dropped", words="honest clients dropped"),
        Measure(name="honest_share", words="share of honest clients"),
        Measure(name="sole_attacker", words="one client suffices"),
        # how alike
        Measure(name="ssim", words="SSIM", unit="index", curve=True),
        Measure(name="psnr", words="PSNR", unit="dB"),
        Measure(name="nearest_correlation", words="nearest correlation", unit="index"),
        Measure(
            name="layer_input_relative_error",
            words="layer input relative error",
            unit="ratio",
            higher_is_worse=False,
        ),
        Measure(name="feature_relative_error", words="feature relative error", higher_is_worse=False),
        Measure(name="prototype_relative_error", words="prototype relative error", higher_is_worse=False),
        Measure(name="label_share_l1", words="label share L1", unit="index", higher_is_worse=False),
        # the same seen from another side
        Measure(name="tpr_at_fpr_0.001", words=f"TPR at {_F01}"),
        Measure(name="examples_in_small_cells", words="examples known to stand in a small group"),
        Measure(name="rare_class_holders", words="clients known by a rare class"),
        Measure(name="count_overlap", words="count overlap"),
        Measure(name="small_cells_found", words="small cells found"),
        Measure(name="label_set_f1", words="label set F1"),
        Measure(name="residual_risk", words="residual risk"),
        Measure(name="rank5", words="rank-5"),
        Measure(name="median_rank", words="median rank", unit="rank", higher_is_worse=False),
        Measure(name="ssim_member_mean", words="SSIM with the members' mean", unit="index"),
        Measure(name="audit_net_distance", words="audit net distance", unit="index", higher_is_worse=False),
        Measure(name="class_consistency", words="class consistency"),
        Measure(name="ssim_gain", words="SSIM gain", unit="index"),
        Measure(name="best_of_n_gap", words="best of n gap", unit="index"),
        Measure(name="closest_ratio", words="closest ratio", unit="index", higher_is_worse=False),
        Measure(name="rank1_over_condensed", words="rank-1 over the condensed image", unit="index"),
        Measure(name="ssim_over_condensed", words="SSIM over the condensed image", unit="index"),
        Measure(
            name="audit_net_distance_over_condensed",
            words="audit net distance over the condensed image",
            unit="index",
            higher_is_worse=False,
        ),
        Measure(name="count_abs_error", words="count absolute error", unit="examples", higher_is_worse=False),
        Measure(
            name="count_abs_error_rounded",
            words="count absolute error, rounded",
            unit="examples",
            higher_is_worse=False,
        ),
        Measure(
            name="count_possible_values",
            words="possible values of a count",
            unit="whole numbers",
            higher_is_worse=False,
        ),
        Measure(name="epsilon_lower", words="epsilon lower", unit=""),
    )
}
# what stands beside a result and is not graded by itself
DESCRIPTIONS = frozenset(
    {
        *("psnr", "nearest_correlation", "rank5", "median_rank", "ssim_member_mean", "ssim_gain"),
        *("audit_net_distance", "class_consistency", "closest_ratio", "residual_risk", "label_set_f1"),
        *("layer_input_relative_error", "feature_relative_error", "prototype_relative_error"),
        *("rank1_over_condensed", "ssim_over_condensed", "audit_net_distance_over_condensed"),
        *("count_exact_match", "count_abs_error", "count_abs_error_rounded", "count_possible_values"),
    }
)
_PLACE = {name: place for place, name in enumerate(MEASURES)}


def named(name: str) -> Measure:
    """The row of a measure; raises ValueError where there is none."""
    try:
        return MEASURES[name]
    except KeyError:
        raise ValueError(
            f"measure {name!r} has no row in attacks/measure.py; an attack of your own may report exact_match, "
            "rank1, auc, accuracy or any other that has one"
        ) from None


def telling(names: Iterable[str], most: int) -> list[str]:
    """The `most` measures of these that tell a reader most, the first first."""
    return sorted(set(names), key=_PLACE.__getitem__)[:most]
