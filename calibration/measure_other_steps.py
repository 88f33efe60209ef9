"""Steps of other kinds than transformers' training: what profiles of users hold, none of it used to fit anything.

Each function builds a step on one GPU; `measure_traces.py` records them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn
from torchvision.models import convnext_tiny, vit_b_16

BF16 = {"device": "cuda", "dtype": torch.bfloat16}


def vision():
    """Return a training step of ViT-B/16 with autocast, gradient clipping and an optimizer that loops over tensors."""
    model = vit_b_16().cuda()
    adam = torch.optim.AdamW(model.parameters(), foreach=True)
    x, y = torch.randn(128, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (128,), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return loss.item()

    return step


def pictures(make):
    """Return a training step of a network of convolutions, such as ResNet-50 or ConvNeXt-T, on 64 pictures."""
    model = make().cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (64,), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        sgd.step()
        sgd.zero_grad()

    return step


def recurrent():
    """Return a training step of a language model with three LSTM layers."""
    embedding, lstm = nn.Embedding(32000, 1024).cuda(), nn.LSTM(1024, 1024, 3, batch_first=True).cuda()
    head = nn.Linear(1024, 32000).cuda()
    adam = torch.optim.Adam([*embedding.parameters(), *lstm.parameters(), *head.parameters()])
    tokens, labels = torch.randint(0, 32000, (2, 32, 256), device="cuda")

    def step():
        out, _ = lstm(embedding(tokens))
        F.cross_entropy(head(out).flatten(0, 1), labels.flatten()).backward()
        adam.step()
        adam.zero_grad()

    return step


class Down(nn.Module):
    """Two convolutions with group norms and a shortcut."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(32, inside, **BF16), nn.GroupNorm(32, outside, **BF16)])
        self.convs = nn.ModuleList(
            [nn.Conv2d(inside, outside, 3, padding=1, **BF16), nn.Conv2d(outside, outside, 3, padding=1, **BF16)]
        )
        self.short = nn.Conv2d(inside, outside, 1, **BF16)

    def forward(self, x):
        h = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(F.silu(norm(h)))
        return h + self.short(x)


def diffusion():
    """Return two denoising steps of a small U-Net: group norms, skips, upsampling, attention, no gradients."""
    widths = (320, 640, 1280)
    first = nn.Conv2d(4, widths[0], 3, padding=1, **BF16)
    downs = nn.ModuleList([Down(a, b) for a, b in zip((widths[0], *widths[:-1]), widths, strict=True)])
    ups = nn.ModuleList([Down(2 * b, a) for a, b in zip((widths[0], *widths[:-1]), widths, strict=True)])
    mix = nn.MultiheadAttention(widths[-1], 20, batch_first=True, **BF16)
    last = nn.Conv2d(widths[0], 4, 3, padding=1, **BF16)
    noise = torch.randn(8, 4, 64, 64, **BF16)

    def step():
        x = noise
        with torch.no_grad():
            for _ in range(2):
                h, kept = first(x), []
                for down in downs:
                    h = down(h)
                    kept.append(h)
                    h = F.avg_pool2d(h, 2)
                flat = h.flatten(2).transpose(1, 2)
                flat = flat + mix(flat, flat, flat, need_weights=False)[0]
                h = flat.transpose(1, 2).reshape(h.shape)
                for up in reversed(ups):
                    h = F.interpolate(h, scale_factor=2, mode="nearest")
                    h = up(torch.cat([h, kept.pop()], 1))
                x = x - 0.1 * last(h)
        return x

    return step


def quantized():
    """Return a forward pass of eight feed-forward blocks in fp8, scaled by tensor."""
    up = [torch.randn(14336, 4096, device="cuda").to(torch.float8_e4m3fn) for _ in range(8)]
    down = [torch.randn(4096, 14336, device="cuda").to(torch.float8_e4m3fn) for _ in range(8)]
    x0, one = torch.randn(4096, 4096, **BF16), torch.ones((), device="cuda")

    def cast(x):
        scale = x.abs().amax().float() / 448
        return (x / scale).to(torch.float8_e4m3fn), scale

    def step():
        x = x0
        with torch.no_grad():
            for a, b in zip(up, down, strict=True):
                q, scale = cast(x)
                h = torch._scaled_mm(q, a.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)
                q, scale = cast(F.silu(h))
                x = x + torch._scaled_mm(q, b.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)
        return x

    return step


def accumulated():
    """Return a step of four microbatches of fp16 with a gradient scaler; inputs come from pinned memory."""
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.1, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    adam, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    inputs = [torch.randn(8, 512, 1024).pin_memory() for _ in range(4)]
    side = torch.cuda.Stream()

    def step():
        for each in inputs:
            with torch.cuda.stream(side):
                x = each.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            with torch.autocast("cuda", torch.float16):
                loss = model(x).float().square().mean() / 4
            scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        adam.zero_grad()

    return step


def adapters():
    """Return a training step of frozen projections with low-rank adapters."""
    hidden, ffn, rank = 4096, 14336, 16
    frozen = [(torch.randn(ffn, hidden, **BF16) * 0.02, torch.randn(hidden, ffn, **BF16) * 0.02) for _ in range(6)]
    lora = nn.ParameterList(
        nn.Parameter(torch.randn(*shape, **BF16) * 0.02)
        for _ in range(6)
        for shape in ((rank, hidden), (ffn, rank), (rank, ffn), (hidden, rank))
    )
    adam = torch.optim.AdamW(lora.parameters(), fused=True)
    x = torch.randn(4096, hidden, **BF16)

    def step():
        h = x
        for n, (up, down) in enumerate(frozen):
            a, b, c, d = lora[4 * n : 4 * n + 4]
            inner = F.gelu(F.linear(h, up) + F.linear(F.linear(h, a), b))
            h = F.layer_norm(h + F.linear(inner, down) + F.linear(F.linear(inner, c), d), (hidden,))
        h.float().square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


def graph_network():
    """Return a training step of a graph network: gathers, scatters and small GEMMs."""
    nodes, edges, width = 200_000, 2_000_000, 128
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)]).cuda()
    sgd = torch.optim.SGD(layers.parameters(), lr=0.1)
    x = torch.randn(nodes, width, device="cuda")
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")

    def step():
        h = x
        for layer in layers:
            h = F.relu(torch.zeros_like(h).index_add(0, target, layer(h)[source]))
        h.square().mean().backward()
        sgd.step()
        sgd.zero_grad()

    return step


def scanned():
    """Return a forward and backward pass of a state-space block: causal convolution and a scan in chunks."""
    batch, length, inner, state = 4, 2048, 2048, 16
    conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3, **BF16)
    project = nn.Linear(inner, 2 * state + 1, **BF16)
    x = torch.randn(batch, inner, length, **BF16, requires_grad=True)

    def step():
        h = F.silu(conv(x)[..., :length]).transpose(1, 2)
        b, c, dt = project(h).float().split([state, state, 1], -1)
        decay = torch.cumsum(F.logsigmoid(dt), 1)
        scores = torch.tril(torch.exp(decay - decay.transpose(1, 2))) * (c @ b.transpose(1, 2))
        (scores.to(h.dtype) @ h).float().square().mean().backward()

    return step


def generated():
    """Return the generation of eight tokens with sampling, each token read by the host."""
    layers, hidden, vocab, batch = 8, 2048, 32000, 4
    weights = [
        [torch.randn(n, hidden, **BF16) * 0.02 for n in (3 * hidden, hidden, 4 * hidden)]
        + [torch.randn(hidden, 4 * hidden, **BF16) * 0.02]
        for _ in range(layers)
    ]
    embedding = torch.randn(vocab, hidden, **BF16)
    start = torch.randint(0, vocab, (batch, 1), device="cuda")

    def step():
        token, caches = start, [None] * layers
        with torch.inference_mode():
            for _ in range(8):
                x = F.embedding(token, embedding)
                for n, (qkv, out, up, down) in enumerate(weights):
                    q, k, v = F.linear(F.layer_norm(x, (hidden,)), qkv).view(batch, 1, 3, 16, 128).unbind(2)
                    k, v = k.transpose(1, 2), v.transpose(1, 2)
                    if caches[n] is not None:
                        k, v = torch.cat([caches[n][0], k], 2), torch.cat([caches[n][1], v], 2)
                    caches[n] = k, v
                    a = F.scaled_dot_product_attention(q.transpose(1, 2), k, v)
                    x = x + F.linear(a.transpose(1, 2).reshape(batch, 1, hidden), out)
                    x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (hidden,)), up)), down)
                chances = F.linear(x[:, -1], embedding).float().softmax(-1)
                token = torch.multinomial(chances, 1)
                token.tolist()

    return step


def compiled_vision():
    """Return a training step of a compiled ViT-B/16."""
    model = vit_b_16().cuda()
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    x, y = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (64,), device="cuda")
    run = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
        adam.step()
        adam.zero_grad()

    return step


def transformed():
    """Return a spectral block: transforms, products and a solve in fp32."""
    x = torch.randn(32, 64, 256, 256, device="cuda")
    weight = torch.randn(64, 64, 32, 32, dtype=torch.complex64, device="cuda")
    matrix = torch.randn(512, 128, 128, device="cuda")

    def step():
        spectrum = torch.fft.rfft2(x)
        mixed = torch.zeros_like(spectrum)
        mixed[..., :32, :32] = torch.einsum("bixy,ioxy->boxy", spectrum[..., :32, :32], weight)
        y = torch.fft.irfft2(mixed, s=x.shape[-2:])
        return F.gelu(x + y).sum() + torch.linalg.solve(matrix, matrix).sum() + x.flatten().sort().values[0]

    return step


STEPS = {
    "vit_eager": vision,
    "vit_compiled": compiled_vision,
    "convnext_eager": lambda: pictures(convnext_tiny),
    "lstm_eager": recurrent,
    "unet_eager": diffusion,
    "fp8_eager": quantized,
    "fp16_accumulated": accumulated,
    "lora_eager": adapters,
    "graph_eager": graph_network,
    "scan_eager": scanned,
    "generate_eager": generated,
    "spectral_eager": transformed,
}
