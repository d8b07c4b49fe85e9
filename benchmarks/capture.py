"""What does watching cost? One watched pass beside the bare eager pass, in one process.

BERT-base shape (12 layers, 128 and 512 tokens) and a Llama shape of 30 layers (128 tokens), random
weights; the library's own maps and states stand beside ours. Peak memory is measured in a process
of its own, with ``keep=()``, against the bare pass.

    python benchmarks/capture.py --out docs/data/capture.json
"""

from support.measure import alone, bare, begun, bert, drawn, llama, megabytes, turns, written

from exhibit_a.trace.capture import capture

EAGER = {"attn_implementation": "eager"}
MODELS = {
    "BERT-base, 12 layers": (lambda: bert(**EAGER), (128, 512)),
    "Llama shape, 30 layers": (lambda: llama(30, **EAGER), (128,)),
}


def main() -> None:
    given, rows = begun(__doc__, repeats=5, alone=str), []
    if given.alone:  # a process of its own
        subject, inputs = bert(**EAGER), drawn(512)
        bare(subject, inputs) if given.alone == "bare" else capture(subject, inputs, keep=())
        print(megabytes("VmHWM"))
        return
    for name, (made, lengths) in MODELS.items():
        subject = made()
        for inputs in map(drawn, lengths):
            everything = {**inputs, "output_attentions": True, "output_hidden_states": True}
            ways = {
                "bare": lambda s=subject, i=inputs: bare(s, i),
                "own maps and states": lambda s=subject, e=everything: bare(s, e),
                "watched": lambda s=subject, i=inputs: capture(s, i, keep=()),
                "all kept": lambda s=subject, i=inputs: capture(
                    s, i, keep=("attention", "values", "hidden")
                ),
            }
            seconds = {way: one.median for way, one in turns(ways, given.repeats, warm=1).items()}
            ratios = {way: spent / seconds["bare"] for way, spent in seconds.items()}
            tokens = inputs["input_ids"].shape[1]
            rows.append(
                {"model": name, "tokens": tokens, "bare_seconds": seconds["bare"], **ratios}
            )
            print(
                name,
                tokens,
                "tokens",
                {way: round(one, 2) for way, one in ratios.items()},
                flush=True,
            )
    memory = {which: alone(__file__, "--alone", which) for which in ("bare", "watched")}
    print("peak memory at 512 tokens, keep=(), in MB:", memory)
    written(given.out, {"rows": rows, "megabytes": memory})


if __name__ == "__main__":
    main()
