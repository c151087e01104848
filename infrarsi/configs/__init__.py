"""Configuration files - YAML, TOML, JSON, Python: values with their lines, edited one by one."""

from infrarsi.configs.config import Config, can_read, read
from infrarsi.configs.entry import Entry, Key, join_key, split_key

__all__ = ["Config", "Entry", "Key", "can_read", "join_key", "read", "split_key"]
