"""Latent attention against transformers' DeepSeek-V2 and V3, the mixture of experts against its Mixtral."""

import numpy as np
import pytest
import torch
from transformers import DeepseekV2Config, DeepseekV3Config, MixtralConfig
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Attention, DeepseekV2RotaryEmbedding
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func

import entrenar as en
from entrenar.models.mla import LatentAttention
from entrenar.models.moe import MoE
from entrenar.models.rotary import rotary_from_config

RNG = np.random.default_rng(0)
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
ROPES = [
    {"rope_type": "default", "rope_theta": 1e4},
    {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e3},
    YARN,
    {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
]
PEERS = {
    "v2": (DeepseekV2Config, DeepseekV2Attention, DeepseekV2RotaryEmbedding),
    "v3": (DeepseekV3Config, DeepseekV3Attention, DeepseekV3RotaryEmbedding),
}


def pair(version, query_rank, rope, **more):
    """(their attention, their rotary module, ours with the same weights)."""
    config_class, attention, rotary = PEERS[version]
    config = config_class(
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=query_rank,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=10,
        v_head_dim=12,
        head_dim=8,
        num_hidden_layers=1,
        max_position_embeddings=128,
        rope_parameters=dict(rope),
        attn_implementation="eager",
        **more,
    )
    torch.manual_seed(0)
    theirs = attention(config, 0).eval()
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1.0 if "layernorm" in name else 0.0))
    ours = LatentAttention(
        *(32, 4, 16, 8, 10, 12, query_rank),
        rotary=rotary_from_config(config.to_dict() | {"head_dim": 8}),
        interleaved=more.get("rope_interleave", True),
        bias=more.get("attention_bias", False),
    )
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    return theirs, rotary(config), ours


CASES = [(v, q, r, {}) for v in PEERS for q in (None, 14) for r in ROPES]
CASES += [("v3", 14, ROPES[0], {"rope_interleave": False}), ("v3", 14, ROPES[0], {"attention_bias": True})]


@pytest.mark.parametrize(("version", "query_rank", "rope", "more"), CASES)
def test_latent_attention_equals_deepseek_s(version, query_rank, rope, more):
    theirs, rotary, ours = pair(version, query_rank, rope, **more)
    x = RNG.normal(size=(2, 11, 32)).astype(np.float32)
    kept = np.ones((2, 11), bool)
    kept[0, :3] = False  # left padding
    at = np.maximum(np.cumsum(kept, 1) - 1, 0)
    sees = np.tril(np.ones((11, 11), bool)) & kept[:, None, None]
    additive = torch.tensor(np.where(sees, 0.0, -1e30).astype(np.float32))
    other = torch.tensor(x, requires_grad=True)
    y = theirs(other, position_embeddings=rotary(other, torch.tensor(at)), attention_mask=additive)[0]
    g = torch.tensor(RNG.normal(size=y.shape) * kept[..., None], dtype=torch.float32)  # of what sees something
    (y * g).sum().backward()
    gradients = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for absorbed in (False, True):
        mine = en.tensor(x, requires_grad=True)
        ours.zero_grad()
        z = ours(mine, kept[:, None, None], at, absorbed=absorbed)
        close(z.detach().numpy()[kept], y.detach().numpy()[kept], 1e-5, "output")
        (z * g.numpy()).sum().backward()
        close(mine.grad.numpy(), other.grad.numpy(), 1e-4, "x")
        found = dict(ours.named_parameters())
        assert found.keys() == gradients.keys()
        for name, gradient in gradients.items():
            close(found[name].grad.numpy(), gradient, 1e-4, name)


def close(ours, theirs, tolerance, name):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max(), err_msg=name)


@pytest.mark.parametrize("version", PEERS)
def test_decoding_from_the_latent_cache_equals_deepseek_at_once(version):
    theirs, rotary, ours = pair(version, 14, ROPES[3])
    x = RNG.normal(size=(2, 9, 32)).astype(np.float32)
    causal = torch.tensor(np.where(np.tril(np.ones((9, 9), bool)), 0.0, -1e30).astype(np.float32))[None, None]
    with torch.no_grad():
        tables = rotary(torch.tensor(x), torch.arange(9)[None])
        y = theirs(torch.tensor(x), position_embeddings=tables, attention_mask=causal)[0].numpy()
    cache = ours.new_cache(2, 9)
    with en.no_grad():
        parts = [ours(en.tensor(x[:, a:b]), cache=cache).data for a, b in ((0, 4), (4, 5), (5, 6), (6, 9))]
    close(np.concatenate(parts, 1), y, 1e-5, version)


@pytest.mark.parametrize(("experts", "top"), [(4, 2), (8, 3), (3, 1), (4, 4)])
def test_the_mixture_equals_mixtral_s(experts, top):
    config = MixtralConfig(
        hidden_size=16,
        intermediate_size=24,
        num_local_experts=experts,
        num_experts_per_tok=top,
        router_jitter_noise=0.0,
    )
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    theirs = MixtralSparseMoeBlock(config)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn(p.shape) * 0.4)
    weights = {name: value.detach().numpy() for name, value in theirs.named_parameters()}
    gate_up, down = weights["experts.gate_up_proj"], weights["experts.down_proj"]
    ours = MoE(16, 24, experts, top)
    state = {"gate.weight": weights["gate.weight"]}
    for e in range(experts):
        state[f"experts.{e}.gate_proj.weight"], state[f"experts.{e}.up_proj.weight"] = np.split(gate_up[e], 2)
        state[f"experts.{e}.down_proj.weight"] = down[e]
    ours.load_state_dict(state)
    x = RNG.normal(size=(2, 13, 16)).astype(np.float32)
    kept = np.ones((2, 13), bool)
    kept[1, 9:] = False
    a, b = en.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    (y, loss), z = ours.routed(a, kept), theirs(b)
    close(y.detach().numpy(), z.detach().numpy(), 1e-5, "output")
    logits = theirs.gate(b.reshape(-1, 16))[0]
    balance = load_balancing_loss_func((logits,), experts, top, torch.tensor(kept.astype(np.int64)))
    assert loss.item() * top == pytest.approx(0.1 * balance.item(), rel=1e-5)
    g = RNG.normal(size=x.shape).astype(np.float32)
    ((y * g).sum() + loss * (30.0 * top)).backward()  # large enough to be seen beside the output's
    ((z * torch.tensor(g)).sum() + balance * 3.0).backward()
    close(a.grad.numpy(), b.grad.numpy(), 1e-4, "x")
    close(ours.gate.weight.grad.numpy(), theirs.gate.weight.grad.numpy(), 1e-4, "router")
    grad = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for e, expert in enumerate(ours.experts):
        halves = np.split(grad["experts.gate_up_proj"][e], 2)
        close(expert.gate_proj.weight.grad.numpy(), halves[0], 1e-4, f"gate {e}")
        close(expert.up_proj.weight.grad.numpy(), halves[1], 1e-4, f"up {e}")
        close(expert.down_proj.weight.grad.numpy(), grad["experts.down_proj"][e], 1e-4, f"down {e}")
