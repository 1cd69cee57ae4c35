"""Language models of a user's own folder: the library's function, read as data, and what is refused."""

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config, RecordedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.data.hf_folder import ARCHITECTURES, import_extra, open_folder, read_folder_tokenizer
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.model import initialise, state_of
from fedaudit.fl.models.hf import HF
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams

TEXTS = ["the ward was quiet", "the patient was in pain", "Zürich: 5 mg, twice", "a patient slept"]
LENGTH, WIDTH = 16, 16
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": LENGTH,
}
GROUPED = SIZES | {"num_key_value_heads": 1}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "n_positions": LENGTH},
    "gpt_neox": SIZES,
    "llama": GROUPED,
    "mistral": GROUPED | {"head_dim": 8},
    "opt": SIZES | {"ffn_dim": 32, "word_embed_proj_dim": WIDTH},
    "qwen2": GROUPED | {"tie_word_embeddings": True},
    "qwen3": GROUPED | {"head_dim": 8},
}
TARGETS = {"gpt2": ["c_attn"], "gpt_neox": ["query_key_value"]}


def write_tokenizer(folder: Path, padding: str | None = None) -> int:
    """A tokenizer of bytes and merges, as GPT-2's, trained on the texts; returns its number of pieces."""
    lib = import_extra("tokenizers")
    made = lib.Tokenizer(lib.models.BPE())
    made.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = lib.decoders.ByteLevel()
    special = ["<first>", "<|endoftext|>", *([padding] if padding else [])]
    alphabet = lib.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, lib.trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    made.save(str(folder / "tokenizer.json"))
    roles = {"eos_token": "<|endoftext|>"} | ({"pad_token": padding} if padding else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    return int(made.get_vocab_size())


def write_folder(folder: Path, kind: str = "llama", padding: str | None = None, **changed: Any) -> Any:
    """A folder as save_pretrained() leaves it; returns the library's model."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = write_tokenizer(folder, padding)
    from fedaudit.fl.runtime.vision import torchvision  # noqa: F401

    lib = import_extra("transformers")
    ids = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": None}
    config = lib.AutoConfig.for_model(kind, **{"vocab_size": pieces + 3} | ids | CONFIGS[kind] | changed)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = lib.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    return model


def build(folder: Path, length: int = LENGTH) -> HF:
    net = initialise(lambda: HF((length,), 1, HF.Config(path=str(folder))), Streams(1))
    assert isinstance(net, HF)
    return net.eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_folder_is_the_function_of_the_library_and_takes_adapters(kind: str, tmp_path: Path) -> None:
    model = write_folder(tmp_path / "m", kind, padding="<pad>")
    net, folder = build(tmp_path / "m"), open_folder(str(tmp_path / "m"))
    assert folder.padding == 2
    ids = torch.randint(3, folder.rows, (4, 9), generator=torch.Generator().manual_seed(0))
    ids[:, 4] = 0  # the folder's 0 is a token, ours of that token is 2
    ours = torch.from_numpy(folder.swap(ids.numpy()))
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        padded = torch.cat([ours, torch.zeros((4, 3), dtype=torch.int64)], 1)
        found, after = net(ours), net(padded)[:, :9]
    assert found.shape == expected.shape and expected.std() > 1e-3
    order = folder.swap(np.arange(folder.rows))
    assert (found - expected[..., order]).abs().max() < 2e-6
    assert (after - found).abs().max() < 2e-6  # padding behind a text changes nothing of it
    assert net.features(ours).shape == (4, 9, WIDTH)
    assert torch.equal(net.head(net.features(ours)), found)
    losses, mask = net.token_losses(padded)
    by_hand = -found.log_softmax(-1)[:, :-1].gather(-1, ours[:, 1:, None])[..., 0]
    assert mask.sum() == 4 * 8 and (losses[:, :8] - by_hand).abs().max() < 1e-5

    adapted = attach(build(tmp_path / "m"), 2, 4.0, TARGETS.get(kind, ["q_proj", "v_proj"]))
    state = state_of(adapted)
    assert state and all(".lora_A.weight" in k or ".lora_B.weight" in k for k in state)
    assert torch.equal(adapted.eval()(ours), found)  # B is 0
    for name, p in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p)
    assert not torch.equal(adapted(ours), found)


def test_without_a_padding_token_the_end_of_texts_is_padding(tmp_path: Path) -> None:
    model = write_folder(tmp_path / "m", "gpt2")
    tokenizer, folder = read_folder_tokenizer(str(tmp_path / "m")), open_folder(str(tmp_path / "m"))
    assert folder.padding == folder.end == 1 and tokenizer.tokens.end == 0
    x = tokenizer.encode(TEXTS, LENGTH)
    own = folder.tokenizer.encode(TEXTS[1]).ids
    assert folder.swap(x[1, : len(own)]).tolist() == own and not x[1, len(own) :].any()
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([own])).logits[0]
        found = build(tmp_path / "m")(torch.from_numpy(x[1:2]))[0, : len(own)]
    assert (found[:, 5:] - expected[:, 5:]).abs().max() < 2e-6


def test_pieces_spell_the_text_and_there_is_one_for_each_row(tmp_path: Path) -> None:
    write_folder(tmp_path / "m", padding="<pad>")
    tokens = read_folder_tokenizer(str(tmp_path / "m")).tokens
    assert len(tokens.pieces) == open_folder(str(tmp_path / "m")).rows
    assert tokens.pieces[0] == "<pad>" and tokens.pieces[tokens.end] == "<|endoftext|>"
    tokenizer = read_folder_tokenizer(str(tmp_path / "m"))
    assert tokens.decode(tokenizer.cut(TEXTS[1])) == TEXTS[1]
    assert "ward" in tokens.pieces and "##patient" not in tokens.pieces


def test_sharded_weights_and_names_without_a_prefix_are_read(tmp_path: Path) -> None:
    write_folder(tmp_path / "m", "gpt2")
    whole = build(tmp_path / "m").state_dict()
    weights = load_file(tmp_path / "m" / "model.safetensors")
    short = {k.removeprefix("transformer."): v.contiguous() for k, v in weights.items()}
    assert short.keys() != weights.keys()
    (tmp_path / "m" / "model.safetensors").unlink()
    names = sorted(short)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({k: short[k] for k in held}, tmp_path / "m" / file)
    index = {"metadata": {}, "weight_map": {k: file for file, held in files.items() for k in held}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    again = build(tmp_path / "m").state_dict()
    assert again.keys() == whole.keys() and all(torch.equal(again[k], v) for k, v in whole.items())


def edit(file: Path, **changed: Any) -> None:
    content = json.loads(file.read_text())
    content.update(changed)
    file.write_text(json.dumps(content))


def drop_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")


def change_weights(folder: Path, change: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def name_weights(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"a": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def poison(weights: dict[str, torch.Tensor]) -> None:
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], torch.nan)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: edit(f / "config.json", model_type="mamba"), "holds a 'mamba', which is not read"),
        (lambda f: edit(f / "config.json", auto_map={"AutoModel": "x.Y"}), "code of its own .auto_map."),
        (lambda f: edit(f / "tokenizer_config.json", auto_map={"A": "x"}), "code of its own .auto_map."),
        (lambda f: edit(f / "config.json", quantization_config={}), "rounded weights"),
        (lambda f: edit(f / "config.json", vocab_size="many"), "no vocab_size"),
        (lambda f: edit(f / "config.json", num_attention_heads=-3), "no model that can be read"),
        (lambda f: edit(f / "config.json", hidden_size=32), "differ in the shape of"),
        (lambda f: edit(f / "config.json", num_hidden_layers=3), "lack model.layers.2"),
        (lambda f: edit(f / "config.json", num_hidden_layers=1), "have model.layers.1"),
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("[1]"), "config.json cannot be read"),
        (lambda f: (f / "adapter_config.json").write_text("{}"), "holds adapters"),
        (drop_weights, "holds no model.safetensors; weights in other files are not read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x80\x04rubbish" * 9), "no model that can be read"),
        (lambda f: change_weights(f, poison), "no finite numbers"),
        (lambda f: change_weights(f, lambda w: w.pop("lm_head.weight")), "lack lm_head.weight"),
        (lambda f: name_weights(f, "../b.safetensors"), "names '../b.safetensors'"),
        (lambda f: name_weights(f, "b.bin"), "names 'b.bin'"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json cannot be read"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
    ],
)
def test_what_a_folder_cannot_be_is_a_sentence(spoil: Any, says: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "m")
    build(tmp_path / "m")
    spoil(tmp_path / "m")
    with pytest.raises(UserError, match=says) as refused:
        build(tmp_path / "m")
    assert refused.value.hint


def test_data_of_another_tokenizer_and_texts_that_are_too_long_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "m")
    with pytest.raises(UserError, match="cut into 4000 pieces"):
        HF((LENGTH,), 1, HF.Config(path=str(tmp_path / "m"), vocabulary=4000))
    edit(tmp_path / "m" / "config.json", vocab_size=20)
    with pytest.raises(UserError, match="and the network 20 rows"):
        read_folder_tokenizer(str(tmp_path / "m"))
    with pytest.raises(UserError, match="reads 16 tokens, and texts have 17"):
        build(tmp_path / "m", LENGTH + 1)


def test_a_federation_of_adapters_on_a_folder_is_read_and_nobody_asks_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path / "m")
    write_folder(tmp_path / "m", padding="<pad>", hidden_size=64)
    lines = [{"text": f"{TEXTS[i % 4]} {i}", "owner": f"p{i}"} for i in range(20)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def refuse(*_: Any) -> None:
        raise AssertionError("somebody asks the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    settings = {
        "federation": {
            "dataset": {"name": "jsonl", "path": str(tmp_path / "t.jsonl"), "tokenizer": where, "length": LENGTH},
            "clients": 4,
            "partition": {"name": "people", "each": 1},
            "model": {"name": "hf", "path": where},
            "adapters": {"rank": 16, "targets": ["q_proj", "v_proj"]},
        },
        "method": {"name": "fedlora", "rounds": 4, "local_epochs": 1, "batch_size": 4, "lr": 0.5},
        "record": "all",
        "attacks": ["adapter_span"],
        "noise_audit": False,
        "report": [],
        "workers": 0,
    }
    config, run = validate(Config, settings, "config"), RunDir(tmp_path / "run")
    run.path.mkdir()
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=False)
    [file] = (run.path / "evidence").glob("[0-9]*.json")
    found = json.loads(file.read_text())["evidence"]
    [recall] = [e for e in found if e["measure"] == "token_recall" and e["control"] == "none"]
    assert recall["value"] == 1 and max(b["value"] for b in recall["baselines"]) < 0.5
    [silent] = [e for e in found if e["control"] == "negative"]
    assert silent["value"] == 0


def test_a_recorded_federation_stands_on_the_weights_of_the_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "m", padding="<pad>")
    settings = {
        "subject": {
            "title": "Recorded",
            "examples": {"classes": ["one", "two"], "shape": [LENGTH]},
            "model": {"name": "hf", "path": str(tmp_path / "m")},
            "base": "the model of the folder",
            "adapters": {"rank": 2, "targets": ["q_proj"]},
        }
    }
    config = validate(Config, settings, "config")
    assert isinstance(config, RecordedConfig)
    make = RecordedCase(config, tmp_path).network.make
    assert make is not None
    x = torch.arange(1, 9)[None]
    assert torch.equal(make().eval()(x), build(tmp_path / "m")(x))
    names = {f"model.layers.{i}.self_attn.q_proj.lora_{m}.weight" for i in (0, 1) for m in "AB"}
    assert make().state_dict().keys() == names
