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
    # "fraction", "share", "index", "dB", ...; a fraction is printed as percent, and so is a share, which no
    # general rule of a policy (units: [fraction]) grades
    unit: str = "fraction"
    higher_is_worse: bool = True
    curve: bool = False  # drawn against the number of samples behind an artifact
    harm: str = ""  # what could happen, for a reader without statistics; empty: it describes, and is never graded


_F1, _F01 = f"1{_NBSP}% FPR", f"0.1{_NBSP}% FPR"
_MEMBER = "A person's record is recognised as training data"
MEASURES = {
    row.name: row
    for row in (
        # whose it is: the record, then the person or client
        Measure(
            name="named",
            words="named",
            curve=True,
            harm="Single people's images are redrawn from what a client sends",
        ),
        Measure(
            name="rank1",
            words="rank-1",
            curve=True,
            harm="The mean of a group's images is seen, to which its own are nearer than others",
        ),
        Measure(
            name="extracted_at_fpr_0.01",
            words=f"extracted at {_F1}",
            harm="A generator draws training images again",
        ),
        Measure(
            name="linkage_rank1",
            words="linkage rank-1",
            curve=True,
            harm="An image is traced to the client that owns it",
        ),
        Measure(name="tpr_at_fpr_0.01", words=f"TPR at {_F1}", curve=True, harm=_MEMBER),
        Measure(name="auc", words="AUC", curve=True, harm=_MEMBER),
        Measure(name="member_first", words="a member first", harm=_MEMBER),
        Measure(
            name="any_member_first",
            words="a member first, above the members' own mean",
            unit="share",  # a difference of two shares
            harm="What a client sends for a group leans towards single people of it",
        ),
        Measure(
            name="image_present",
            words="image present",
            harm="An image of a client's, or what training makes of it alone, stands in what is sent",
        ),
        Measure(
            name="image_drawn_again", words="image drawn again", harm="A generator draws training images again"
        ),
        Measure(
            name="exact_row",
            words="rows found, value for value",
            harm="Rows of single people follow from what a client sends",
        ),
        Measure(
            name="values_near",
            words="values of rows found, numbers within .319 deviations",
            unit="share",  # much of it is right of anybody
            harm="Values of single people's rows are redrawn from what a client sends",
        ),
        Measure(
            name="lone_value",
            words="people alone in a cell of a table",
            harm="A value of a single person stands in counts that a client sends",
        ),
        # what texts say
        Measure(
            name="exact_text",
            words="texts found, word for word",
            harm="A client's texts are read word for word from what it sends",
        ),
        Measure(
            name="rare_token_recall",
            words="rare words found",
            harm="Names and other rare words of a client's texts are read from what it sends",
        ),
        Measure(
            name="token_f1",
            words="token F1",
            unit="index",
            harm="The words of a client's texts are read from what it sends",
        ),
        Measure(
            name="text_emitted", words="texts emitted", harm="A model writes a client's text again, word for word"
        ),
        Measure(
            name="exposure_of_one",
            words="exposure of a secret that stands once",
            unit="bits",
            harm="A secret that stands in one text is drawn out of the model",
        ),
        Measure(
            name="exposure",
            words="exposure of a secret",
            unit="bits",
            harm="A secret of clients' texts is drawn out of the model",
        ),
        Measure(name="label_auc", words="label AUC", harm="The label of a single example is revealed"),
        Measure(
            name="count_exact_match",
            words="count exact match",
            harm="The number of examples of each class that a client holds is learned",
        ),
        Measure(
            name="value_known",
            words="missing values known",
            unit="share",  # much of it is right of anybody
            harm="A value of a person whose other values are known is learned from a model",
        ),
        Measure(
            name="value_beyond",
            words="missing values known by the model alone",
            unit="share",  # a difference of two shares
            harm="A value of a person whose other values are known is learned from a model",
        ),
        Measure(
            name="class_means_known",
            words="means of all columns by class known",
            harm="The mean of every column of a client's people is learned, class by class",
        ),
        Measure(
            name="label_set_exact_match",
            words="label set exact match",
            harm="The classes that a client holds are learned",
        ),
        Measure(
            name="majority_class", words="majority class", harm="The class that a client holds most of is learned"
        ),
        Measure(
            name="size_known",
            words="number of examples known",
            harm="The number of examples that a client holds is learned",
        ),
        Measure(
            name="device_class", words="class of device known", harm="The speed of a client's device is learned"
        ),
        Measure(
            name="prototype_recovered",
            words="prototype recovered",
            harm="What a client meant for the server alone is read by others",
        ),
        Measure(
            name="copies_flagged",
            words="copies flagged",
            harm="Images made for sharing are copies of training images",
        ),
        Measure(
            name="copied_share",
            words="copied share",
            harm="Images made for sharing are copies of training images",
        ),
        Measure(
            name="class_recognised",
            words="class recognised",
            harm="The class of an image made for sharing can be seen",
        ),
        Measure(
            name="exact_match", words="exact match", harm="An answer about a client is found exactly"
        ),  # for an attack of your own
        Measure(name="asr", words="attack success rate", harm="An attacker's own answer is planted in the model"),
        Measure(
            name="accuracy", words="accuracy", higher_is_worse=False, harm="An answer about a client is found"
        ),
        # what compromised clients do to the model
        Measure(name="accuracy_drop", words="accuracy drop", harm="Malicious clients make the model wrong"),
        Measure(
            name="worst_class_drop",
            words="worst class drop",
            harm="Malicious clients make the model wrong about one class",
        ),
        Measure(name="cost_of_defence", words="cost of defence", harm="The defence itself makes the model wrong"),
        Measure(
            name="cost_of_worst_class",
            words="cost of defence to the worst class",
            harm="The defence itself makes the model wrong about one class",
        ),
        Measure(
            name="changed_by_counts",
            words="share of answers changed by claimed counts",
            unit="share",
            harm="A false number of examples changes the model",
        ),
        Measure(name="worst_client_drop", words="drop of the clients that are served worst"),
        Measure(name="durability", words="rounds in which a backdoor halves", unit="rounds"),
        Measure(name="norm_rank", words="share of honest changes that are shorter", unit="index"),
        Measure(name="cosine_rank", words="share of honest changes further from the others", unit="index"),
        Measure(name="malicious_found", words="malicious clients found", higher_is_worse=False),
        Measure(name="honest_dropped", words="honest clients dropped"),
        Measure(name="rounds_too_few", words="rounds with too few clients for the rule"),
        # how alike
        Measure(
            name="ssim", words="SSIM", unit="index", curve=True, harm="Images like a client's own are redrawn"
        ),
        Measure(name="token_recall", words="words found", unit="share"),
        Measure(name="token_precision", words="claimed words that are right", unit="share"),
        Measure(name="ranked_token_precision", words="first words of the order that are right", unit="share"),
        Measure(name="rouge_l", words="ROUGE-L", unit="index"),
        Measure(name="psnr", words="PSNR", unit="dB"),
        Measure(name="mse", words="mean squared error", unit="index", higher_is_worse=False),
        Measure(name="nearest_correlation", words="nearest correlation", unit="index"),
        Measure(
            name="layer_input_relative_error",
            words="layer input relative error",
            unit="ratio",
            higher_is_worse=False,
        ),
        Measure(name="feature_relative_error", words="feature relative error", higher_is_worse=False),
        Measure(name="prototype_relative_error", words="prototype relative error", higher_is_worse=False),
        Measure(name="size_relative_error", words="relative error of a client's size", higher_is_worse=False),
        # of a detector, from 0 to 1: high where gradients depend on labels
        Measure(
            name="gradient_score",
            words="score of the gradients that clients are sent",
            unit="index",
            higher_is_worse=False,
        ),
        Measure(name="speed_rank", words="rank correlation of speeds", unit="index"),
        Measure(
            name="label_share_l1",
            words="label share L1",
            unit="index",
            higher_is_worse=False,
            harm="The share of each class in a client's examples is learned",
        ),
        # the same seen from another side
        Measure(name="tpr_at_fpr_0.001", words=f"TPR at {_F01}", harm=_MEMBER),
        Measure(
            name="examples_in_small_cells",
            words="examples known to stand in a small group",
            harm="People who stand in small groups are counted",
        ),
        Measure(
            name="rare_class_holders",
            words="clients known by a rare class",
            harm="Clients are known by a class that few hold",
        ),
        Measure(
            name="count_overlap",
            words="count overlap",
            harm="The number of examples of each class that a client holds is learned",
        ),
        Measure(
            name="small_cells_found",
            words="small cells found",
            harm="Classes with a handful of examples are pointed out",
        ),
        Measure(name="label_set_f1", words="label set F1"),
        Measure(name="residual_risk", words="residual risk"),
        Measure(name="rank5", words="rank-5"),
        Measure(name="median_rank", words="median rank", unit="rank", higher_is_worse=False),
        Measure(name="ssim_member_mean", words="SSIM with the members' mean", unit="index"),
        Measure(name="audit_net_distance", words="audit net distance", unit="index", higher_is_worse=False),
        Measure(name="class_consistency", words="class consistency"),
        Measure(name="ssim_gain", words="SSIM gain", unit="index"),
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


_PLACE = {name: place for place, name in enumerate(MEASURES)}


def find_measure(name: str) -> Measure:
    """The row of a measure; raises ValueError where there is none."""
    try:
        return MEASURES[name]
    except KeyError:
        raise ValueError(
            f"measure {name!r} has no row in attacks/measure.py; an attack of your own may report exact_match, "
            "named, auc, accuracy or any other that has one"
        ) from None


def telling(names: Iterable[str], most: int) -> list[str]:
    """The `most` measures of these that tell a reader most, the first first."""
    return sorted(set(names), key=_PLACE.__getitem__)[:most]
