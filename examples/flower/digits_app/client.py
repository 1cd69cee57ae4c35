"""A client: a few epochs of SGD on its own digits."""

from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from net import Net

from digits_app.data import split

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    settings = context.run_config
    x, y = split()[0][int(context.node_config["partition-id"])]
    keep(str(settings["truth-dir"]), context.node_id, x, y)
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=float(settings["lr"]))
    images, labels, loss = torch.from_numpy(x), torch.from_numpy(y), torch.zeros(())
    for _ in range(int(settings["local-epochs"])):
        for batch in torch.randperm(len(y)).split(int(settings["batch-size"])):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images[batch]), labels[batch])
            loss.backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(y), "train_loss": loss.item()})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    x, y = split()[0][int(context.node_config["partition-id"])]
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    with torch.no_grad():
        right = (net(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).float().mean()
    metrics = MetricRecord({"num-examples": len(y), "accuracy": float(right)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


def keep(folder: str, node: int, x: np.ndarray, y: np.ndarray) -> None:
    """What this client holds, for an auditor who may see it."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        np.savez(Path(folder, f"{node}.npz"), x=x, y=y)
