"""torch_mtl4.patch and unpatch: a model's attention and linears on this package's kernels, and back."""

import threading
from dataclasses import dataclass, field

from torch import nn

from torch_mtl4.integrations.kinds import INTERFACE, OWN, SDPA, attention_kind
from torch_mtl4.integrations.names import ATTENTION_NAME
from torch_mtl4.integrations.quantization import attach_quantizer, detach_quantizer
from torch_mtl4.integrations.sdpa import enabled
from torch_mtl4.nn.convert import quantize_linears, replace_everywhere

_STATE = "_mtl4_patch"
_lock = threading.RLock()


@dataclass
class _Patch:
    """What a patch replaced. Plain data, so that it stays right in a deep copy of the model."""

    configs: list[tuple[object, str | None]] = field(default_factory=list)
    forwards: list[nn.Module] = field(default_factory=list)
    stricts: list[nn.Module] = field(default_factory=list)
    linears: list[tuple[str, nn.Module | None]] = field(default_factory=list)


class _EnabledForward:
    """A module's forward within `enabled`. An object and not a closure: a deep copy of the module copies it along."""

    def __init__(self, module: nn.Module, strict: bool):
        self.__wrapped__ = module.forward
        self.had_own = module.__dict__.get("forward")
        self.strict = strict

    def __call__(self, *args, **kwargs):
        with enabled(strict=self.strict):
            return self.__wrapped__(*args, **kwargs)


def patch(
    model: nn.Module,
    attention: bool = True,
    weights: str | None = None,
    *,
    skip: list[str] | None = None,
    keep_originals: bool = False,
    strict: bool = False,
) -> nn.Module:
    """Puts a model's attention, and on request its linear layers, on our kernels, in place.

    Modules that look their attention up in transformers' interface get the name "mtl4" in their config; modules that
    call F.scaled_dot_product_attention (diffusers, timm, nn.MultiheadAttention, older transformers models) get a
    forward within `torch_mtl4.enabled`. Modules that compute attention with matmul and softmax stay as they are, and
    `torch_mtl4.report(model)` names them.

    Patching again adds to the first patch. Different models may be patched in different threads; a model must not be
    in the middle of a forward pass.

    Args:
        model: any module.
        attention: whether to patch attention.
        weights: "mxfp8" quantizes the linear layers and experts (`torch_mtl4.nn.quantize_linears`), None leaves them.
            A transformers model can then be saved and reloaded as one that was loaded with Mtl4Config.
        skip: modules whose weights stay, see quantize_linears.
        keep_originals: keep the full-precision weights in memory, so that unpatch brings them back bit for bit.
            Without it they are freed, and unpatch brings back the values of the MXFP8 bytes.
        strict: raise in place of any attention call that cannot take the kernel, and here for modules that bypass it.

    Returns:
        The model.

    Raises:
        TypeError: model is not a module.
        ValueError: weights is neither None nor "mxfp8".
        NotImplementedError: strict, and a module computes its attention itself.
    """
    _check_module("patch", model)
    if weights not in (None, "mxfp8"):
        raise ValueError(f"patch: expected weights None or 'mxfp8', got {weights!r}")
    with _lock:
        if attention and strict:
            _refuse_bypassing(model)
        state = getattr(model, _STATE, None) or _Patch()
        setattr(model, _STATE, state)
        if attention:
            _patch_attention(model, state, strict)
        if weights is not None:
            layers = dict(model.named_modules(remove_duplicate=False)) if keep_originals else {}
            conversions = quantize_linears(model, skip=skip)
            state.linears += [(c.name, layers.get(c.name)) for c in conversions if c.converted]
            attach_quantizer(model, conversions)
    return model


def unpatch(model: nn.Module) -> nn.Module:
    """Undoes `patch`: every config's attention name, forwards and linear layers are what they were.

    Weights that were quantized without keep_originals come back as float layers with the values of their bytes. Does
    nothing to a model that is not patched.

    Args:
        model: the module that was given to patch, or a deep copy of it.

    Returns:
        The model.

    Raises:
        TypeError: model is not a module.
        RuntimeError: a quantized layer is no longer where patch left it.
    """
    _check_module("unpatch", model)
    with _lock:
        state = getattr(model, _STATE, None)
        if state is None:
            return model
        if state.linears:
            _restore_linears(model, state)
            detach_quantizer(model)
        for config, name in state.configs:
            config._attn_implementation_internal = name
        for module in state.forwards:
            wrapper = module.__dict__.pop("forward")
            if wrapper.had_own is not None:
                module.forward = wrapper.had_own
        for module in state.stricts:
            module.__dict__.pop("_mtl4_strict", None)
        delattr(model, _STATE)
    return model


def _check_module(function: str, model) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function}: expected model torch.nn.Module, got {type(model).__name__}")


def _refuse_bypassing(model: nn.Module) -> None:
    own = [name for name, module in model.named_modules() if attention_kind(module) == OWN]
    if own:
        raise NotImplementedError(
            f"patch: expected modules whose attention can be replaced (strict mode), got {len(own)} that compute it "
            f"themselves: {', '.join(own[:4])}{', ...' if len(own) > 4 else ''}"
        )


def _patch_attention(model: nn.Module, state: _Patch, strict: bool) -> None:
    for config in switchable_configs(model):
        if config._attn_implementation != ATTENTION_NAME:
            state.configs.append((config, config._attn_implementation))
            config._attn_implementation_internal = ATTENTION_NAME
    for module in model.modules():
        kind = attention_kind(module)
        if kind == SDPA and not isinstance(module.__dict__.get("forward"), _EnabledForward):
            module.forward = _EnabledForward(module, strict)
            state.forwards.append(module)
        elif kind == INTERFACE and strict:
            module._mtl4_strict = True
            state.stricts.append(module)


def switchable_configs(model: nn.Module) -> list:
    """The configs of a transformers model in which the attention name can be set without breaking a module.

    Those that modules look their attention up with, and those of the models around them. A config that modules with
    attention of their own use too is left alone, unless a model with this config supports sdpa: only then do such
    modules know the boolean masks that come with the name.
    """
    configs, kinds, supports_sdpa = configs_in(model), {}, set()
    for module, config in configs.items():
        kinds.setdefault(id(config), (config, set()))[1].add(attention_kind(module))
        if getattr(module, "_supports_sdpa", False):
            supports_sdpa.add(id(config))
    used = {
        key: config
        for key, (config, users) in kinds.items()
        if INTERFACE in users and (users.isdisjoint({SDPA, OWN}) or key in supports_sdpa)
    }
    around = {
        id(config): config
        for module, config in configs.items()
        if kinds[id(config)][1] == {None} and any(id(configs.get(inner)) in used for inner in module.modules())
    }
    return [*used.values(), *around.values()]


def configs_in(model: nn.Module) -> dict[nn.Module, object]:
    """The transformers config that counts for each module: its own, or that of the nearest module around it."""
    configs = {}

    def visit(module: nn.Module, config) -> None:
        own = getattr(module, "config", None)
        config = own if hasattr(own, "_attn_implementation_internal") else config
        if config is not None:
            configs.setdefault(module, config)
        for child in module.children():
            visit(child, config)

    visit(model, None)
    return configs


def _restore_linears(model: nn.Module, state: _Patch) -> None:
    for name, original in state.linears:
        try:
            layer = model.get_submodule(name)
            restored = layer.dequantize() if original is None else original
        except AttributeError as error:
            raise RuntimeError(f"unpatch: expected the quantized layer {name} where patch left it ({error})") from None
        if original is not None:
            original.train(layer.training)
        replace_everywhere(model, layer, restored)
    state.linears.clear()
