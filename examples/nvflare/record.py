"""Makes a small inbox with NVFlare's own classes: two clients, two rounds, with and without a privacy filter.

    fedaudit tools recorder nvflare --out fedaudit_recorder.py
    python record.py INBOX          # in an environment with nvflare 2.7 or newer

It passes real exchange objects through NVFlare's PercentilePrivacy and then through the recorder, as a server
does that has it as its input filter; nothing is trained. tests/audit/importing/nvflare is what it left with
2.9.0.
"""

import sys

import numpy as np
from fedaudit_recorder import Tap, parts
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ProcessType
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy


def context(client: str) -> FLContext:
    """What a filter on the server is given: who sent it."""
    server, peer = FLContext(), FLContext()
    server.set_prop(FLContextKey.PROCESS_TYPE, ProcessType.SERVER_JOB, private=True, sticky=False)
    server.set_prop("__identity_name__", "digits_project", private=False, sticky=False)
    peer.set_prop("__identity_name__", client, private=False, sticky=False)
    server.set_peer_context(peer)
    return server


def main(folder: str) -> None:
    rng = np.random.default_rng(7)
    model = {"fc.weight": rng.normal(size=(10, 64)).astype("f4"), "fc.bias": np.zeros(10, "f4")}
    down, up, privacy = Tap(folder), Tap(folder), PercentilePrivacy(percentile=50, gamma=0.5)
    down.set_prop(FilterContextKey.CHAIN_TYPE, FilterChainType.TASK_DATA_CHAIN)
    for part in (up, privacy):
        part.set_prop(FilterContextKey.CHAIN_TYPE, FilterChainType.TASK_RESULT_CHAIN)
    for t in range(2):
        changes = {
            site: {k: 0.1 * rng.normal(size=v.shape) for k, v in model.items()} for site in ("site-1", "site-2")
        }
        sent = []
        for site, change in changes.items():
            task = DXO(DataKind.WEIGHTS, dict(model), {MetaKey.CURRENT_ROUND: t}).to_shareable()
            down.process(task, context(site))
            data = {k: v.astype("f4") for k, v in change.items()}
            meta = {MetaKey.CURRENT_ROUND: t, MetaKey.NUM_STEPS_CURRENT_ROUND: 4}
            result = DXO(DataKind.WEIGHT_DIFF, data, meta).to_shareable()
            if site == "site-1":
                result = privacy.process(result, context(site))
            else:  # models in a collection
                result = DXO(DataKind.COLLECTION, {"model": DXO(DataKind.WEIGHT_DIFF, data, meta)}).to_shareable()
            up.process(result, context(site))
            sent.append(next(dxo for _, dxo in parts(from_shareable(result))).data)
        model = {k: (v + np.mean([c[k] for c in sent], axis=0)).astype("f4") for k, v in model.items()}


if __name__ == "__main__":
    main(sys.argv[1])
