"""Secrets are taken out of text by their form and by their name; ordinary words stay."""

import pytest

from infrarsi.contract.secrecy import HIDDEN, without_secrets

HEX = "0123456789abcdef0123456789abcdef01234567"
SECRETS = {
    "hugging-face": ("token hf_" + "aB3" * 9, "hf_" + "aB3" * 9),
    "openai": ("export X=sk-proj-" + "aB3-" * 6, "sk-proj-" + "aB3-" * 5),
    "anthropic": ("sk-ant-api03-" + "aB3_" * 6, "sk-ant-api03-" + "aB3_" * 5),
    "github": ("git clone https://ghp_" + "a1B2" * 9 + "@github.com/x/y", "ghp_" + "a1B2" * 9),
    "aws": ("AKIA" + "ABCD1234" * 2, "AKIA" + "ABCD1234" * 2),
    "wandb-variable": (f"WANDB_API_KEY={HEX} torchrun train.py", HEX),
    "wandb-export": (f"export WANDB_API_KEY='{HEX}'", HEX),
    "wandb-login": (f"wandb login --relogin {HEX}", HEX),
    "wandb-call": (f'wandb.login(key="{HEX}")', HEX),
    "wandb-environ": (f'os.environ["WANDB_API_KEY"] = "{HEX}"', HEX),
    "flag": ("python train.py --api-key hunter22 --lr 1", "hunter22"),
    "flag-equals": ("python train.py --api_key=hunter22", "hunter22"),
    "flag-token": ("python train.py --hub-token 'abc-def-ghi'", "abc-def-ghi"),
    "plain-token": ("TOKEN=abcdefgh bash run.sh", "abcdefgh"),
    "access-key": ("AWS_SECRET_ACCESS_KEY=abc/def+ghi", "abc/def+ghi"),
    "yaml": ("api_key: abcdefghij", "abcdefghij"),
    "json": ('{"password": "abcdefgh"}', "abcdefgh"),
    "header": ("Authorization: Bearer abcdefgh.ijk", "abcdefgh.ijk"),
    "url": ("pip install --index-url https://me:pass1word@host/simple x", "pass1word"),
}
ORDINARY = (
    "torchrun --nproc_per_node 8 train.py --max-tokens 4096 --lr 3e-4",
    "tokens_per_update: 65536",
    "PAD_TOKEN=50256 TOKENIZERS_PARALLELISM=false",
    "tokenizer = AutoTokenizer.from_pretrained(name)",
    "export HF_TOKEN=$HF_TOKEN WANDB_API_KEY=${KEY}",
    "key: value, keys=('a', 'b'), num_key_value_heads=8",
    "loss 3.1415 step 10 tok/s 12345.6",
    "sk-learn is a library; task-12345678901234567890",
    "commit 0123456789abcdef0123456789abcdef01234567",
    "https://github.com/owner/name/tree/main@v1",
    "--token-dropout 0.100000 --tokens 100",
    "sdpa: query, key, value = qkv.split(width, dim=2)",
    "error: the password file is missing",
    "best bench at 2026-01-01 12:00:00",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_taken_out_and_the_rest_stays(name: str) -> None:
    text, secret = SECRETS[name]
    found = without_secrets(text)
    assert secret not in found
    assert HIDDEN in found
    assert found.split(HIDDEN)[0] == text[: len(found.split(HIDDEN)[0])]
    assert without_secrets(found) == found


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert without_secrets(text) == text
