"""A canary client: the auditor's own, which takes part as any other and whose members the auditor knows.

A ClientApp to put in the place of the federation's: `clientapp = "digits_app.canary:app"` in pyproject.toml. It
trains as their clients do, with their code, on examples of the auditor's own. In a simulation, where one app
plays all nodes, the node behind theirs is the canary; on a SuperNode of its own leave the first two lines of a
function out.

What it trained on, and what remains of the auditor's examples, goes to `canary-dir`: the truth of an audit.
It holds a number of examples that no other client has, by which it is known among the nodes.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from digits_app import client
from digits_app.data import CLIENTS, canary

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    if int(context.node_config["partition-id"]) < CLIENTS:
        return client.train(message, context)
    settings = context.run_config
    members, others = canary(str(settings["split"]))
    client.keep(str(settings["canary-dir"]), f"{context.node_id}", members)
    client.keep(str(settings["canary-dir"]), "own", others)
    return client.trained(message, context, members)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    if int(context.node_config["partition-id"]) < CLIENTS:
        return client.evaluate(message, context)
    return client.evaluated(message, canary(str(context.run_config["split"]))[0])
