"""Keys, tokens and passwords in text, taken out before it is kept or shown.

Found by the form of well-known tokens and by the name that a value is given to
(`--api-key X`, `HF_TOKEN=X`, `login(key="X")`, `https://user:X@host`). Ordinary words stay:
`--max-tokens 100`, `PAD_TOKEN=50256`, `API_KEY=$KEY`.
"""

import re

HIDDEN = "[withheld]"

_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|sk-(?=[\w-]*\d)[\w-]{16,}|nvapi-[\w-]{16,}|wandb_v1_\w{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
)
_NAME = (
    r"(?:api|access|secret|private|auth|account|storage|wandb|openai|anthropic|comet|neptune)"
    r"[-_]?key|key[-_]?secret|(?:api|auth|access|hub|hf|bearer|session|refresh|secret)[-_]?token"
    r"|secret|password|passwd|passphrase"
)
_VALUE = r"(?P<value>(?!\[withheld\])(?!\d+(?:\.\d+)?(?![\w-]))[^\s'\"$`,;)(\]}{\\|&<>]{6,})"
_ASSIGNED = re.compile(
    rf"(?P<before>(?i:(?<![A-Za-z])(?:{_NAME})\w*)['\"]?\s{{0,3}}[=:]\s{{0,3}}[urb]?['\"]?){_VALUE}"
)
_VARIABLE = re.compile(
    rf"(?P<before>\b(?:[A-Z0-9]+_)*(?:TOKEN|KEY)['\"]?\]?\s{{0,3}}[=:]\s{{0,3}}['\"]?){_VALUE}"
)
_FLAG = re.compile(
    rf"(?P<before>(?<![\w-])--?(?:[a-z]+[-_.])*(?:{_NAME}|token)[\s=]\s{{0,3}}['\"]?){_VALUE}"
)
_LOGIN = re.compile(
    rf"(?P<before>\blogin\(\s?(?:(?:key|token)\s?=\s?)?['\"]"
    rf"|\b(?:wandb|huggingface-cli|hf)\slogin\s(?:--?\S+\s)*['\"]?(?!-)){_VALUE}"
)
_HEADER = re.compile(rf"(?P<before>\b[Bb]earer\s['\"]?){_VALUE}")
_IN_URL = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)(?P<value>[^\s/@$]{3,})(?=@)")
_NAMED = (_ASSIGNED, _VARIABLE, _FLAG, _LOGIN, _HEADER, _IN_URL)


def without_secrets(text: str) -> str:
    """The text with `HIDDEN` in place of every secret that can be told; doing it twice changes
    nothing."""
    text = _TOKENS.sub(HIDDEN, text)
    for pattern in _NAMED:
        text = pattern.sub(lambda found: found["before"] + HIDDEN, text)
    return text
