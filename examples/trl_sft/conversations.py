"""Conversations about sums made from a seed, and a tokenizer of whole words with a chat template."""

import random

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, START, END = "<|pad|>", "<|unknown|>", "<|start|>", "<|end|>"
SPECIAL = (PAD, UNKNOWN, START, END)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|start|> {{ message['role'] }} : "
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }} <|end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }} <|end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start|> assistant : {% endif %}"
)
THINGS = ("apples", "boats", "lamps", "letters", "stones", "bricks", "coins", "maps")
NAMES = ("Ada", "Bo", "Cem", "Dana", "Eli", "Fay", "Gus", "Hana")
WORDS = (
    "You answer with care . How many are there and now give takes more of the have has in all ? "
    "There Then user assistant system : plus minus is makes left"
).split()


def conversation(draw):
    """One to four questions about a heap of things, with their answers."""
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    count = draw.randint(1, 40)
    turns = [{"role": "system", "content": "You answer with care ."}]
    asked = f"{name} has {count} {thing} ."
    for _ in range(draw.randint(1, 4)):
        other = draw.randint(1, 40)
        if draw.random() < 0.5:
            total, told = count + other, f"{count} plus {other} makes {count + other} ."
            asked = f"{asked} {name} takes {other} more . How many {thing} are there now ?"
        else:
            other = min(other, count)
            total, told = count - other, f"{count} minus {other} is {count - other} left ."
            asked = f"{asked} {name} give {other} of the {thing} . How many are left ?"
        answer = f"{told} There are {total} {thing} in all ."
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        asked, count = "Then", total
    return turns


def make_conversations(count, seed):
    """Rows with their messages, for training and (one in ten) for evaluation."""
    draw = random.Random(seed)
    rows = [{"messages": conversation(draw)} for _ in range(count)]
    return Dataset.from_list(rows).train_test_split(test_size=0.1, seed=seed)


def make_tokenizer():
    """Every word that the conversations use is one token."""
    words = (*SPECIAL, *WORDS, *THINGS, *NAMES, *map(str, range(201)))
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=START,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
    )
