"""Prompts of our own for language models, by kind.

facts       the answer is what the model has learned
induction   the answer followed the same words before
two names   the answer is the name that is not repeated (indirect object)
key-value   the answer stands in a list next to the key in the question
arithmetic  the answer is computed
far name    the answer is a name that stands 100 to 1,000 tokens back
chat        the text is what a user writes, to be put into the model's chat template

An answer is the continuation that a person expects, with its leading space. Where there is none,
the model's own next token is explained.

    from prompts import PROMPTS
    short = [prompt for prompt in PROMPTS if prompt.kind != "far name"]
"""

from itertools import cycle
from typing import NamedTuple

DISTANCES = (100, 300, 600, 1000)  # tokens between a far name and its question
TOKENS_PER_WORD = 1.2  # with the full stop: of usual tokenizers, in English


class Prompt(NamedTuple):
    """One prompt, and the continuation that a person expects."""

    kind: str
    text: str
    answer: str | None = None
    chat: bool = False


FACTS = (
    ("The capital of Italy is the city of", " Rome"),
    ("Berlin is a large city in the east of", " Germany"),
    ("Water freezes in winter and turns into", " ice"),
    ("The opposite of the word big is the word", " small"),
    ("Bees fly from flower to flower and make", " honey"),
    ("The sun rises in the east and sets in the", " west"),
    ("In Madrid most people speak", " Spanish"),
    ("The first month of the year is", " January"),
    ("A baby dog is called a", " puppy"),
    ("The largest planet that goes around our sun is", " Jupiter"),
    ("People who sail to Egypt see the river", " Nile"),
    ("Bread is made from water, salt, yeast and", " flour"),
)

INDUCTION = (
    ("The violet lamp hangs by the door. At night everybody looks at the violet", " lamp"),
    ("Professor Tolbek praised the mango soup. The guests praised Professor", " Tolbek"),
    ("red table, green chair, blue window, red table, green chair, blue", " window"),
    ("Nora packed a copper kettle. When it rained, Nora unpacked the copper", " kettle"),
    ("one fox, two owls, three bears, one fox, two owls, three", " bears"),
    ("The wooden boat left at noon. Much later the wooden", " boat"),
    ("north, harbour, silver, march, north, harbour, silver,", " march"),
    ("He bought a paper tiger, and she laughed at the paper", " tiger"),
    ("The quiet gardener sang. The dogs slept. Then the quiet", " gardener"),
    ("apple river stone cloud apple river stone", " cloud"),
    ("Our team met at Maple Street, and we parted again at Maple", " Street"),
)

TWO_NAMES = (
    ("When Mary and John came to the market, John gave a basket to", " Mary"),
    ("After Alice and Peter had finished dinner, Peter handed the plate to", " Alice"),
    ("While Tom and Sarah were waiting for the bus, Sarah lent her umbrella to", " Tom"),
    ("Because Anna and David shared a desk, David passed the ruler to", " Anna"),
    ("When Paul and Emma reached the lake, Emma threw the ball to", " Paul"),
    ("Before James and Lucy left the hotel, James returned the key to", " Lucy"),
    ("As Rose and Henry walked home, Henry told the secret to", " Rose"),
    ("Once Mark and Julia had opened the shop, Julia sold a candle to", " Mark"),
    ("When Kate and Simon cleaned the attic, Simon showed the old map to", " Kate"),
    ("Since George and Helen liked chess, Helen offered the white pieces to", " George"),
    ("After Laura and Daniel missed the train, Daniel bought a coffee for", " Laura"),
    ("While Adam and Grace painted the fence, Grace gave the smaller brush to", " Adam"),
)

KEY_VALUE = (
    (
        "Room list. kitchen: yellow, cellar: grey, attic: purple. The colour of the cellar is",
        " grey",
    ),
    ("apple = 4, pear = 7, plum = 9. So pear =", " 7"),
    ("Ben owns a cat. Ida owns a horse. Leo owns a rabbit. The animal of Ida is a", " horse"),
    ("Monday: soup. Tuesday: fish. Wednesday: rice. On Tuesday we eat", " fish"),
    ("Gate 1 goes to Paris, gate 2 goes to Oslo, gate 3 goes to Rome. Gate 2 goes to", " Oslo"),
    ("Code words: sun means bread, moon means milk, star means salt. Moon means", " milk"),
    ("Lena plays the piano, Omar plays the drums, Ruth plays the flute. Omar plays the", " drums"),
    ("shelf A: glass; shelf B: paper; shelf C: metal. You find the paper on shelf", " B"),
    ("Max was born in Texas, Eva in Ohio, Ken in Maine. Eva comes from the state of", " Ohio"),
    ("key: silver, door: green, roof: brown. The door is", " green"),
    ("Hotel Swan costs 60 euros, Hotel Bear costs 90 euros. Hotel Bear costs", " 90"),
)

ARITHMETIC = (
    ("Two plus three equals", " five"),
    ("Ten minus four equals", " six"),
    ("Three times three equals", " nine"),
    ("1 + 1 = 2, 2 + 2 = 4, 3 + 3 =", " 6"),
    ("2, 4, 6, 8,", " 10"),
    ("5 + 4 =", " 9"),
    ("Half of twelve is", " six"),
    ("Mia had four eggs and broke one, so the number of eggs left is", " three"),
    ("A square has four sides, and two squares together have", " eight"),
    ("one, two, three, four, five, six,", " seven"),
    ("12 - 7 = 5, 13 - 7 = 6, 14 - 7 =", " 7"),
    ("Seven days are a week, and fourteen days are", " two"),
)

CHAT = (
    "Name the capital of Norway in one word.",
    "I have three apples and eat one. How many are left?",
    "Translate the word house into French.",
    "Is a whale a fish? Answer yes or no.",
    "My sister Clara lives in Lisbon. Where does Clara live?",
    "Write one sentence about a lighthouse in the fog.",
    "Which is heavier, a feather or a brick?",
    "Finish the list: spring, summer, autumn,",
    "The train leaves at nine and takes two hours. When does it arrive?",
    "Say thank you to my neighbour Mr. Velling in a friendly way.",
    "Is this review positive or negative? The food was cold and the waiter was rude.",
    "Give me a rhyme for the word moon.",
)

NAMES = ("Teresa", "Walter", "Miriam")
PEOPLE = (
    "the baker", "an old sailor", "the new teacher", "a young painter", "the night guard",
    "the postman", "a tired nurse", "the tall farmer", "our driver", "a quiet student", "the cook",
)  # fmt: skip
DEEDS = (
    "looked for a dry place to sit", "carried two boxes up the stairs", "read an old newspaper",
    "fed the pigeons in the yard", "mended a broken chair", "counted the boats in the harbour",
    "waited for the rain to stop", "swept the leaves from the path", "boiled water for the tea",
    "watched the clouds above the hill", "wrote a short letter", "washed the windows",
    "walked slowly along the wall",
)  # fmt: skip
TIMES = (
    "In the morning", "Later that day", "On Sunday", "Before lunch", "After the storm",
    "Towards evening", "A little later",
)  # fmt: skip


def filler(tokens: int) -> str:
    """Sentences in which no name is written, of about as many tokens; always the same ones."""
    sentences: list[str] = []
    words = 0
    for time, person, deed in zip(cycle(TIMES), cycle(PEOPLE), cycle(DEEDS), strict=False):
        if words * TOKENS_PER_WORD >= tokens:
            break
        sentences.append(f"{time} {person} {deed}.")
        words += len(sentences[-1].split())
    return " ".join(sentences)


def far_name(name: str, distance: int) -> Prompt:
    """A name, about as many tokens of other sentences, and the question for the name."""
    text = f"The owner of the mill is called {name}. {filler(distance)} The owner of the mill is"
    return Prompt("far name", f"{text} called", f" {name}")


PROMPTS: tuple[Prompt, ...] = (
    *(Prompt("facts", text, answer) for text, answer in FACTS),
    *(Prompt("induction", text, answer) for text, answer in INDUCTION),
    *(Prompt("two names", text, answer) for text, answer in TWO_NAMES),
    *(Prompt("key-value", text, answer) for text, answer in KEY_VALUE),
    *(Prompt("arithmetic", text, answer) for text, answer in ARITHMETIC),
    *(far_name(name, distance) for distance in DISTANCES for name in NAMES),
    *(Prompt("chat", text, chat=True) for text in CHAT),
)
