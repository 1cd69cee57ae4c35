"""Trains the base on public text: python -m lora_app.base FILE. Every clinic has it, and nobody sends it."""

import sys

import torch
from net import GPT, compute_loss
from safetensors.torch import save_file

from lora_app.data import public_rows


def main(file: str, steps: int = 150) -> None:
    torch.set_num_threads(1)  # a second one waits more than it works
    torch.manual_seed(0)
    net, rows = GPT(), torch.from_numpy(public_rows())
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        compute_loss(net, rows[torch.randint(len(rows), (16,))]).backward()
        optimiser.step()
    save_file(net.state_dict(), file)


if __name__ == "__main__":
    main(sys.argv[1])
