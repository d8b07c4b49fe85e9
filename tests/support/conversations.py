"""A conversation, and a small language model whose tokenizer can write one out."""

import exhibit_a as xa
from support.words import plain_tokenizer
from support.zoo import FAMILIES

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'pirate' %}{{ raise_exception('no pirates') }}"
    "{% endif %}very {{ m['content'] }} , {% endfor %}{% if add_generation_prompt %}it {% endif %}"
)
TALK = [
    {"role": "system", "content": "really"},
    {"role": "user", "content": "a fine film"},
    {"role": "assistant", "content": "not the plot"},
]


def talking_subject() -> xa.Subject:
    """A language model with a chat template."""
    tokenizer = plain_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return xa.load(FAMILIES["llama"].build(), tokenizer=tokenizer)
