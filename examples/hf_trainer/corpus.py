"""Weather reports made from a seed, a tokenizer trained on them, and blocks of token ids."""

import random
from itertools import chain

from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|end|>"
PLACES = "the harbour,the upper valley,the old bridge,the islands,the plain,the eastern pass".split(",")
SKIES = "low cloud,thin fog,clear sky,broken cloud,heavy rain,light snow,drizzle,haze".split(",")
WINDS = "north,north-east,east,south-east,south,south-west,west,north-west".split(",")
TIMES = "at dawn,before noon,by noon,in the afternoon,towards evening,at night".split(",")
TRENDS = "rising,falling,steady,rising slowly,falling fast".split(",")


def report(draw):
    """One report: a few sentences about one place over a day."""
    place = draw.choice(PLACES)
    temperature = draw.randint(-8, 24)
    lines = [f"Report for {place}."]
    for time in sorted(draw.sample(range(len(TIMES)), draw.randint(2, 5))):
        temperature += draw.randint(-3, 4)
        lines.append(
            f"{TIMES[time].capitalize()} {draw.choice(SKIES)}, wind {draw.choice(WINDS)} at "
            f"{draw.randint(1, 40)} knots, {temperature} degrees."
        )
    lines.append(f"Pressure {draw.randint(970, 1040)} and {draw.choice(TRENDS)}.")
    return " ".join(lines)


def make_documents(count, seed):
    """Training and validation documents, one in ten for validation."""
    draw = random.Random(seed)
    texts = [report(draw) for _ in range(count)]
    cut = count - count // 10
    return DatasetDict(
        train=Dataset.from_dict({"text": texts[:cut]}),
        validation=Dataset.from_dict({"text": texts[cut:]}),
    )


def train_tokenizer(texts, vocab_size):
    """A byte-level BPE tokenizer of these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def in_blocks(documents, tokenizer, block_size):
    """The documents one after the other, cut into blocks of block_size tokens."""

    def tokenize(rows):
        return {"input_ids": tokenizer([text + END for text in rows["text"]])["input_ids"]}

    def group(rows):
        ids = list(chain.from_iterable(rows["input_ids"]))
        blocks = [ids[i : i + block_size] for i in range(0, len(ids) - block_size + 1, block_size)]
        return {"input_ids": blocks, "labels": [list(block) for block in blocks]}

    tokenized = documents.map(tokenize, batched=True, remove_columns=["text"])
    return tokenized.map(group, batched=True)
