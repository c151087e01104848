"""Trains a randomly initialised GPT-2 with transformers' Trainer; all settings are flags."""

from dataclasses import dataclass, field

from sentences import PAD, VOCABULARY, Collator, Sentences
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ModelArguments:
    """The size of the model."""

    width: int = field(default=48)
    layers: int = field(default=2)
    heads: int = field(default=4)
    dropout: float = field(default=0.1)
    attention: str = field(default="sdpa")


@dataclass
class DataArguments:
    """How much is read."""

    block_size: int = field(default=48)
    train_rows: int = field(default=512)
    eval_rows: int = field(default=32)


def build_model(model_args, data_args):
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=data_args.block_size,
        n_embd=model_args.width,
        n_layer=model_args.layers,
        n_head=model_args.heads,
        resid_pdrop=model_args.dropout,
        embd_pdrop=model_args.dropout,
        attn_pdrop=model_args.dropout,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=PAD,
        use_cache=False,
        attn_implementation=model_args.attention,
    )
    return GPT2LMHeadModel(config)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    model = build_model(model_args, data_args)
    block_size = data_args.block_size
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Sentences(data_args.train_rows, block_size),
        eval_dataset=Sentences(data_args.eval_rows, block_size, first=100_000),
        data_collator=Collator(block_size),
    )
    trainer.train()
    metrics = trainer.evaluate()
    print(f"final eval_loss {metrics['eval_loss']:.6f}", flush=True)
    trainer.save_model()


if __name__ == "__main__":
    main()
