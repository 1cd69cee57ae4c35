"""A client: a few epochs of SGD on its own digits."""

from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from net import Net

from digits_app.data import Examples, split

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    settings = context.run_config
    own = split(str(settings["split"]))[0][int(context.node_config["partition-id"])]
    keep(str(settings["truth-dir"]), f"{context.node_id}", own)
    return trained(message, context, own)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    own = split(str(context.run_config["split"]))[0][int(context.node_config["partition-id"])]
    return evaluated(message, own)


def trained(message: Message, context: Context, own: Examples) -> Message:
    """What a client of these examples answers."""
    torch.set_num_threads(1)
    settings = context.run_config
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=float(settings["lr"]))
    images, labels, loss = torch.from_numpy(own.x), torch.from_numpy(own.y), torch.zeros(())
    for _ in range(int(settings["local-epochs"])):
        for batch in torch.randperm(len(labels)).split(int(settings["batch-size"])):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images[batch]), labels[batch])
            loss.backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(labels), "train_loss": loss.item()})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def evaluated(message: Message, own: Examples) -> Message:
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    with torch.no_grad():
        right = (net(torch.from_numpy(own.x)).argmax(1) == torch.from_numpy(own.y)).float().mean()
    metrics = MetricRecord({"num-examples": len(own.y), "accuracy": float(right)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


def keep(folder: str, name: str, own: Examples) -> None:
    """What somebody holds, for an auditor who may see it."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        np.savez(Path(folder, f"{name}.npz"), x=own.x, y=own.y)
