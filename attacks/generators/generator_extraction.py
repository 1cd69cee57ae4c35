"""Generator extraction: training images that a generator draws again, and how many.

Carlini, Hayes, Nasr, Jagielski, Sehwag, Tramer, Balle, Ippolito, Wallace. Extracting Training Data from
Diffusion Models. USENIX Security 2023. arXiv:2301.13188, sec. 5.1. With the images g that the generator
makes, a training image x counts as extracted when

    min over g of   ||g - x|| / mean of ||g - y||     y: the images nearest to g but x

is below what one in a hundred held-out images of the same classes reaches, which nobody trained on and
which are among the y as well. Where nothing is copied, one training image in a hundred is extracted.

Changed: the paper takes ratios below a fixed number, by which a set of plain images would count as
copied; the held-out images set the threshold here. Neighbours are 10 where it has 50: fewer images.

Claim: as in attacks/generators/_membership.py; `queried` holds the images made.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Claim, Examples, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.counting import CountedPeople, gather_people
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.matching import Matched, by_query
from fedaudit.attacks.evaluation.membership import Scores
from fedaudit.attacks.evidence import Evidence, ImageGallery, Series
from fedaudit.attacks.generators._copies import Copies, copies, drawn_again, find_drawn
from fedaudit.attacks.generators._membership import CARD, Pairs
from fedaudit.attacks.generators.generator_distance import GeneratorDistance, Made
from fedaudit.attacks.modality.images import fingerprints, ssim
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm

RATE = 0.01  # of held-out images that count as extracted
_SHOWN = 8


class GeneratorExtraction(GeneratorDistance):
    card = replace(
        CARD,
        title="Training images that a generator draws again",
        source="arXiv:2301.13188, sec. 5.1",
        aim=Aim.REGURGITATION,
        learns="training images themselves: some of what the generator makes is a copy of one",
        does_not_show="copies of images beyond those compared, one or two copies that are not exact, shifted or "
        "recoloured copies, and what more generated images would hold; it is no proof of privacy",
    )

    @settings
    class Config(GeneratorDistance.Config):
        neighbours: AtLeastOne = Field(
            default=10, description="nearest other images that say what is near; the paper has 50"
        )

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        pairs, found = self.pairs(claim, truth), list[Evidence]()
        if any(len(m.members) for _, m in pairs):
            blind = {
                f"{name} generator": self._scores([(claim[name][0], m) for _, m in pairs])
                for name in ("untrained", "reference")
            }
            found += self._evidence(pairs, blind, "none", f"of {len(pairs)} generators")
        if len((trap := self.trap(claim))[0][1].members):
            few = f"of a generator trained on {self.config.planted} auxiliary images alone"
            found += self._evidence(trap, {}, "positive", few)
        non_members = self.non_members(pairs, rng)
        if any(len(m.members) for _, m in non_members):
            none = "images that were never trained on in the place of training images"
            found += self._evidence(non_members, {}, "negative", none)
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of everybody behind a generator, whose image it draws far nearer than any that nobody trained on."""
        found = CountedPeople("emitted: drawn again, nearer than any held-out image", Harm.RECONSTRUCTION)
        for made, artifact, clients in zip(claim["queried"], claim["artifact"], claim["behind"], strict=True):
            unseen = truth.unseen([int(k) for k in clients]).images
            members, owners, rows = gather_people(truth, str(artifact), np.unique(unseen.y).tolist())
            others = Examples(x=unseen.x[np.isin(unseen.y, members.y)], y=unseen.y[np.isin(unseen.y, members.y)])
            if not len(members) or len(others) < 2:
                continue
            ratios = self._copies(made, Matched(members=members, others=others))
            emitted, silent = find_drawn(ratios)
            for k in np.unique(owners).tolist():
                found.test(k, rows[owners == k], rows[emitted & (owners == k)])
            for mark, is_lucky in zip(fingerprints(others.x), silent.tolist(), strict=True):
                found.luck(float(is_lucky), 1, person=mark, clients=np.unique(owners).tolist())
        return found.people(truth)

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        pairs = self.pairs(claim, truth)
        if not any(len(m.members) for _, m in pairs):
            return []
        reference = [(claim["reference"][0], m) for _, m in pairs]
        return [
            membership.curve("copies", self._scores(pairs)),
            membership.curve("reference", self._scores(reference), blind=True),
        ]

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        """The training images that come nearest to being drawn again; and what copies look like."""
        pairs = [(queried, m) for queried, m in self.pairs(claim, truth) if len(m.members)]
        trap = [(queried, m) for queried, m in self.trap(claim) if len(m.members)]
        return [
            *(self._gallery(*pair, "Training images that come nearest to a copy") for pair in pairs[:2]),
            *(self._gallery(*pair, "What copies look like: the planted generator") for pair in trap),
        ]

    def _gallery(self, queried: Made, m: Matched, title: str) -> ImageGallery:
        found = self._copies(queried, m)
        best = np.argsort(found.members)[:_SHOWN]
        made = queried.images[found.copy[best]]
        own, other = m.members.x[best], m.others.x[found.nearest_other[best]]
        like, unlike = (float(ssim(made, x).mean()) for x in (own, other))
        return ImageGallery(
            title=title,
            caption=f"The {len(best)} of {len(m.members)} training images that one of {len(queried.images)} "
            "generated images comes nearest to. Above each, that distance as a share of its mean distance to "
            f"the {self.config.neighbours} images next to it; one in a hundred held-out images is below "
            f"{np.quantile(found.others, RATE):.2f}. Mean SSIM to the training images {like:.2f}, to the "
            f"nearest held-out ones {unlike:.2f}: a copy looks like the first and unlike the second.",
            rows={"generated": made, "training image": own, "nearest held-out image": other},
            columns=tuple(f"{r:.2f}" for r in found.members[best]),
        )

    def _copies(self, queried: Made, m: Matched) -> Copies:
        return copies(queried.images, m, self.config.neighbours)

    def _scores(self, pairs: Pairs) -> Scores:
        both = [self._copies(queried, m) for queried, m in pairs]
        sets = [m for _, m in pairs]
        return by_query(sets, [-b.members for b in both], [-b.others for b in both])

    def _evidence(
        self,
        pairs: Pairs,
        blind: Mapping[str, Scores],
        control: Literal["none", "positive", "negative"],
        whose: str,
    ) -> list[Evidence]:
        """How well ratios tell training images from others, and the share that is extracted."""
        every = [self._copies(queried, m) for queried, m in pairs if len(m.members) and len(m.others)]
        own = self._scores(pairs)
        found = membership.evidence(own, blind, control=control, condition={"score": "copies"})
        said = []
        for e in found[:2]:  # AUC, and the rate at 1 % where there are held-out images enough
            hits = round(e.value * e.trials)
            what = f"{hits} of {e.trials} images, {whose}" if e.measure != "auc" else whose
            name = e.measure.replace("tpr_at_fpr", "extracted_at_fpr")
            said.append(replace(e, measure=name, note=f"{e.note}; {what}".removeprefix("; ")))
        if every and control != "positive":  # few generators of few images: each is asked for itself
            again = sum(int(find_drawn(c)[0].sum()) for c in every)
            note = f"{again} images drawn nearer than any that nobody trained on; generators: {len(every)}"
            drawn, score = [drawn_again(c) for c in every], {"score": "copies"}
            one = Judge(control=control, condition=score, note=note).judge_present(
                drawn,
                groups=INDEPENDENT,  # each generator is asked for itself
            )
            said.append(replace(one, measure="image_drawn_again"))
        return said
