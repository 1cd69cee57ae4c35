"""Tokens: every name can be written, the vocabulary is of public text, and a user's is read as data."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedaudit.fl.data.dataset import Arrays, Data, Dataset, read_data
from fedaudit.fl.data.hf_folder import open_tokenizer
from fedaudit.fl.data.tokenizer import LEAST, PRINTABLE, Tokenizer, learn_tokenizer, read_tokenizer
from fedaudit.fl.data.tokens import Tokens
from fedaudit.fl.datasets._texts import read_help_pages
from fedaudit.fl.runtime.errors import UserError


def ours(size: int = 1000) -> Tokenizer:
    return learn_tokenizer(["the cat and the other cat saw another"], size, "a sentence")


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.tokens.pieces[i] for i in tokenizer.cut(text)]


@pytest.mark.parametrize("text", ["Zoltan Öztürk took 5.25 mg (twice).", "北京 x_y-z", "the cat"])
def test_any_text_is_cut_into_known_pieces_and_joined_again(text: str) -> None:
    tokenizer = ours()
    joined = tokenizer.tokens.decode(tokenizer.cut(text))
    raw = bytes(int(p[-3:-1], 16) for p in pieces(tokenizer, "ü"))
    assert raw.decode() == "ü"
    assert joined == text if text.isascii() else joined.count(" ") == text.count(" ")


def test_frequent_words_are_one_piece_and_others_are_pieces_of_two() -> None:
    tokenizer = learn_tokenizer(["banana nana", "the the the"], LEAST + 3, "x")  # one of the three is a pair
    assert tokenizer.tokens.pieces[LEAST:] == ("##na", "the", "banana")
    assert pieces(tokenizer, "the nanas") == ["the", "n", "##a", "##na", "##s"]
    assert pieces(tokenizer, "53.") == ["5", "##3", "##."]


def test_rows_end_with_the_end_and_are_padded_with_zero() -> None:
    x = ours().encode(["the cat", "the the the the the"], 4)
    assert x.tolist()[0][2:] == [1, 0] and x.tolist()[1][3] == 1
    assert ours().tokens.mask(x).sum(1).tolist() == [3, 4]


def test_the_same_text_gives_the_same_pieces_in_any_order_of_ties() -> None:
    one, two = (learn_tokenizer([t], 900, "x").tokens.pieces for t in ("bbb aaa", "aaa bbb"))
    assert one == two and len(set(one)) == len(one)


def test_a_vocabulary_says_what_it_was_chosen_by() -> None:
    assert not ours().tokens.private and ours().tokens.origin == "a sentence"
    assert learn_tokenizer(["x"], 900, "clients", private=True).tokens.private
    with pytest.raises(UserError, match="at least"):
        learn_tokenizer(["x"], 10, "x")


def test_pythons_help_is_there_and_long() -> None:
    pages = read_help_pages()
    assert len(pages) > 50 and sum(map(len, pages.values())) > 300_000


def test_a_tokenizer_json_is_read_as_data(tmp_path: Path) -> None:
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[SEP]": 2, "hel": 3, "##lo": 4, "wor": 5}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": vocabulary}, "version": "1.0"}))
    tokenizer = read_tokenizer(str(file))
    assert tokenizer.encode(["hello wor x"], 6).tolist() == [[3, 4, 5, 1, 2, 0]]
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}))
    with pytest.raises(UserError, match="type 'BPE'"):
        read_tokenizer(str(file))
    file.write_text("{")
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        read_tokenizer(str(file))


def test_what_cannot_be_cut_is_unknown_for_whoever_cuts_or_the_file_is_refused(tmp_path: Path) -> None:
    file, signs = tmp_path / "tokenizer.json", [*PRINTABLE, *("##" + c for c in PRINTABLE)]
    pieces = ["[PAD]", "[SEP]", *signs]
    file.write_text(json.dumps({"model": {"vocab": {piece: i for i, piece in enumerate(pieces)}}}))
    with pytest.raises(UserError, match="neither '<0x80>' nor a piece for what is unknown"):
        read_tokenizer(str(file))
    file.write_text(json.dumps({"model": {"vocab": {piece: i for i, piece in enumerate([*pieces, "[UNK]"])}}}))
    tokenizer = read_tokenizer(str(file))
    for cuts in (tokenizer, open_tokenizer(tokenizer.tokens)):  # an attack has the pieces alone
        assert cuts.cut("a é b") == [pieces.index("a"), len(pieces), pieces.index("b")]


class Beyond(Dataset):
    """Of two pieces the sixth."""

    title = "x"

    def load(self) -> Data:
        arrays = Arrays(x=np.array([[1, 5]]), y=np.array([0]))
        return Data(train=arrays, test=arrays, classes=("a",), schema=Tokens(pieces=("a", "b"), origin="x"))


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    with pytest.raises(UserError, match="its vocabulary has 2"):
        read_data(Beyond())
