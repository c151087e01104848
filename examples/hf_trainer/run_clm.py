"""Pre-trains a causal language model from scratch with the Trainer. Start it with train.sh."""

import logging
import math
import sys
from dataclasses import dataclass, field

import datasets
import transformers
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from corpus import in_blocks, make_documents, train_tokenizer

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    """The model to train from scratch."""

    vocab_size: int = field(default=512, metadata={"help": "Size of the tokenizer that is trained."})
    hidden_size: int = field(default=128, metadata={"help": "Width of the residual stream."})
    intermediate_size: int = field(default=384, metadata={"help": "Width inside the MLP."})
    num_hidden_layers: int = field(default=4, metadata={"help": "Number of blocks."})
    num_attention_heads: int = field(default=4, metadata={"help": "Attention heads of a block."})
    attn_implementation: str = field(
        default="eager",
        metadata={"help": "How attention is computed.", "choices": ["eager", "sdpa"]},
    )


@dataclass
class DataArguments:
    """What is read."""

    num_documents: int = field(default=800, metadata={"help": "Documents to make."})
    block_size: int = field(default=128, metadata={"help": "Tokens of one training sample."})
    corpus_seed: int = field(default=7, metadata={"help": "Seed of the documents."})


def setup_logging(training_args):
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
        datefmt="%m/%d/%Y %H:%M:%S",
        handlers=[logging.StreamHandler(sys.stdout)],
    )
    level = training_args.get_process_log_level()
    logger.setLevel(level)
    datasets.utils.logging.set_verbosity(level)
    transformers.utils.logging.set_verbosity(level)
    datasets.disable_progress_bars()


def build_model(model_args, data_args, tokenizer):
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=model_args.hidden_size,
        intermediate_size=model_args.intermediate_size,
        num_hidden_layers=model_args.num_hidden_layers,
        num_attention_heads=model_args.num_attention_heads,
        max_position_embeddings=data_args.block_size,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation=model_args.attn_implementation,
    )
    return LlamaForCausalLM(config)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    setup_logging(training_args)
    set_seed(training_args.seed)

    documents = make_documents(data_args.num_documents, data_args.corpus_seed)
    tokenizer = train_tokenizer(documents["train"]["text"], model_args.vocab_size)
    with training_args.main_process_first(desc="tokenizing"):
        blocks = in_blocks(documents, tokenizer, data_args.block_size)
    logger.info("%d training blocks, %d validation blocks", *map(len, blocks.values()))

    model = build_model(model_args, data_args, tokenizer)
    logger.info("training a new model of %.2fM parameters", model.num_parameters() / 1e6)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=blocks["train"],
        eval_dataset=blocks["validation"],
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )

    result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()

    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
