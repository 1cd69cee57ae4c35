"""A clinic: a step of SGD on its own notes, through the adapters alone."""

from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from net import GPT, adapt, compute_loss, list_adapters, load_adapters
from safetensors.torch import load_file

from lora_app.data import Examples, split

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    settings = context.run_config
    own = split()[0][int(context.node_config["partition-id"])]
    keep(str(settings["truth-dir"]), f"{context.node_id}", own)
    net = start(str(settings["base"]))
    load_adapters(net, message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=float(settings["lr"]))
    x, loss = torch.from_numpy(own.x), torch.zeros(())
    for _ in range(int(settings["local-epochs"])):
        optimiser.zero_grad()
        loss = compute_loss(net, x)
        loss.backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(own.y), "train_loss": loss.item()})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(list_adapters(net)), "metrics": metrics}), reply_to=message
    )


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    own = split()[0][int(context.node_config["partition-id"])]
    net = start(str(context.run_config["base"]))
    load_adapters(net, message.content["arrays"].to_torch_state_dict())
    with torch.no_grad():
        loss = compute_loss(net, torch.from_numpy(own.x)).item()
    metrics = MetricRecord({"num-examples": len(own.y), "eval_loss": loss})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


def start(base: str) -> GPT:
    """The base with new adapters."""
    net = GPT()
    net.load_state_dict(load_file(base))
    return adapt(net)


def keep(folder: str, name: str, own: Examples) -> None:
    """What somebody holds, for an auditor who may see it."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        np.savez(Path(folder, f"{name}.npz"), x=own.x, y=own.y)
