"""Supervised fine-tuning on conversations with TRL. Start it with train.sh."""

from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser

from conversations import make_conversations, make_tokenizer


@dataclass
class ScratchArguments:
    """The model that is made where no model is named."""

    hidden_size: int = field(default=128)
    intermediate_size: int = field(default=352)
    num_hidden_layers: int = field(default=4)
    num_attention_heads: int = field(default=4)


@dataclass
class DataArguments:
    """The conversations."""

    num_conversations: int = field(default=400)
    data_seed_of_conversations: int = field(default=11)


def build_model(scratch_args, model_args, tokenizer):
    if model_args.model_name_or_path is not None:
        return AutoModelForCausalLM.from_pretrained(
            model_args.model_name_or_path, attn_implementation=model_args.attn_implementation
        )
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=scratch_args.hidden_size,
        intermediate_size=scratch_args.intermediate_size,
        num_hidden_layers=scratch_args.num_hidden_layers,
        num_attention_heads=scratch_args.num_attention_heads,
        num_key_value_heads=scratch_args.num_attention_heads // 2,
        max_position_embeddings=1024,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        attn_implementation=model_args.attn_implementation,
    )
    return Qwen2ForCausalLM(config)


def main(scratch_args, data_args, training_args, model_args):
    set_seed(training_args.seed)
    tokenizer = make_tokenizer()
    rows = make_conversations(data_args.num_conversations, data_args.data_seed_of_conversations)
    trainer = SFTTrainer(
        model=build_model(scratch_args, model_args, tokenizer),
        args=training_args,
        train_dataset=rows["train"],
        eval_dataset=rows["test"] if training_args.eval_strategy != "no" else None,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model(training_args.output_dir)
    trainer.accelerator.print(f"saved the model to {training_args.output_dir}")


if __name__ == "__main__":
    parser = TrlParser((ScratchArguments, DataArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
