"""What the files of a model and its heads are called."""

from __future__ import annotations

HEADS_NAME = "medusa_lm_head"
HEADS_FOLDER = "heads"
DRAFTERS_FOLDER = "drafters"  # beside a model: a folder for the weights of each further drafter
TREE_NAME = "tree.json"
GPU_TREE_NAME = "tree-gpu.json"
ACCURACIES_NAME = "accuracies.json"
SETTINGS_NAME = "draft.json"  # a drafter's settings by kind of device
ADAPTER_NAME = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
CONFIG_NAME = "config.json"
GENERATION_NAME = "generation_config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = f"{WEIGHTS_NAME}.index.json"
PICKLED_NAME = "pytorch_model.bin"  # of bases from before safetensors, such as Vicuna v1.3

BASE_KEY = "base_model_name_or_path"  # in the heads' config
EMBEDDED = "embedded"  # value of that key in heads for the project's own model

TOKENIZER_FILES = ["tokenizer*", "special_tokens_map.json", "chat_template.jinja", "vocab.json", "merges.txt"]
MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
PICKLED_FILES = ["pytorch_model*.bin"]  # fetched where a repository has no safetensors: many have both
BESIDE_HEADS = [TREE_NAME, GPU_TREE_NAME, ACCURACIES_NAME, ADAPTER_NAME, ADAPTER_CONFIG]
HEAD_FILES = [CONFIG_NAME, SETTINGS_NAME, "*lm_head*", INDEX_NAME, *BESIDE_HEADS]
