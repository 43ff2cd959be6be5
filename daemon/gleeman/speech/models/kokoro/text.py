"""Phoneme tokens to hidden states, twice: an ALBERT whose output feeds the prosody predictor, and a small
convolutional encoder whose output is what the decoder says. Knows no style and no time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import KokoroConfig
from .convs import TimeConv
from .layers import EPSILON, BiLSTM, Rows

BERT_EPSILON = 1e-12


class _Embeddings(nn.Module):
    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.tokens, config.bert_embedding)
        self.position_embeddings = nn.Embedding(config.bert_positions, config.bert_embedding)
        self.token_type_embeddings = nn.Embedding(2, config.bert_embedding)
        self.LayerNorm = nn.LayerNorm(config.bert_embedding, eps=BERT_EPSILON)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, P) -> (B, P, bert_embedding)."""
        x = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        return self.LayerNorm.forward(x + self.position_embeddings.weight[: ids.shape[1]])


class _Attention(nn.Module):
    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        size = config.bert_hidden
        self.heads = config.bert_heads
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.dense = nn.Linear(size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=BERT_EPSILON)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, P, D), keep (B, 1, 1, P) bool or None -> (B, P, D)."""
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, P, D / heads)
            for part in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
        return self.LayerNorm.forward(x + self.dense(seen.transpose(1, 2).flatten(2)))


class _Layer(nn.Module):
    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.ffn = nn.Linear(config.bert_hidden, config.bert_feed_forward)
        self.ffn_output = nn.Linear(config.bert_feed_forward, config.bert_hidden)
        self.full_layer_layer_norm = nn.LayerNorm(config.bert_hidden, eps=BERT_EPSILON)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = self.attention(x, keep)
        y = self.ffn_output(F.gelu(self.ffn(x), approximate="tanh"))
        return self.full_layer_layer_norm.forward(y + x)


class _Group(nn.Module):
    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        self.albert_layers = nn.ModuleList([_Layer(config)])


class _Encoder(nn.Module):
    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        self.embedding_hidden_mapping_in = nn.Linear(config.bert_embedding, config.bert_hidden)
        self.albert_layer_groups = nn.ModuleList([_Group(config)])


class Albert(nn.Module):
    """A transformer that passes its one layer many times. Its nesting follows the names of the weights."""

    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        self.passes = config.bert_layers
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)

    def forward(self, ids: Tensor, rows: Rows) -> Tensor:
        """ids (B, P) int64 -> (B, P, bert_hidden); pads are not attended to."""
        keep = None if rows.even else rows.mask[:, None].bool()  # (B, 1, 1, P)
        x: Tensor = self.encoder.embedding_hidden_mapping_in(self.embeddings(ids))
        layer = self.encoder.get_submodule("albert_layer_groups.0.albert_layers.0")
        for _ in range(self.passes):
            x = layer(x, keep)
        return x


class ChannelNorm(nn.Module):
    """Layer norm over channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C, P) -> (B, C, P)."""
        y = F.layer_norm(x.transpose(1, 2), self.gamma.shape, self.gamma, self.beta, EPSILON)
        return y.transpose(1, 2)


class TextEncoder(nn.Module):
    """What is said: convolutions over the phonemes, then an LSTM."""

    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        size, kernel = config.hidden, config.text_kernel
        self.embedding = nn.Embedding(config.tokens, size)
        self.cnn = nn.ModuleList(
            nn.Sequential(
                TimeConv(size, size, kernel, padding=kernel // 2), ChannelNorm(size), nn.LeakyReLU(0.2)
            )
            for _ in range(config.text_layers)
        )
        self.lstm = BiLSTM(size, size)

    def forward(self, ids: Tensor, rows: Rows) -> Tensor:
        """ids (B, P) int64 -> (B, P, D); pads are 0."""
        x: Tensor = self.embedding(ids).transpose(1, 2)  # (B, D, P)
        for block in self.cnn:
            x = block(rows.zero_pads(x))
        return self.lstm.run(x.transpose(1, 2), rows)
