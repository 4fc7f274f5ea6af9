"""The names under which transformers finds our attention and mask functions."""

import sys

from torch_mtl4.integrations._on_import import when_imported

ATTENTION_NAME = "mtl4"

_serving_sdpa = False
_replaced: dict[type, object] = {}


def register() -> None:
    """Makes `attn_implementation="mtl4"` known to transformers, now or once it is imported."""
    for module_name in _INTERFACES:
        when_imported(module_name, _register_in)


def serve_sdpa_name() -> None:
    """Puts our functions under transformers' name "sdpa", now or once it is imported."""
    global _serving_sdpa
    _serving_sdpa = True
    for module_name in _INTERFACES:
        if module_name in sys.modules:
            _register_in(sys.modules[module_name])


def restore_sdpa_name() -> None:
    """Puts transformers' own functions back under the name "sdpa"."""
    global _serving_sdpa
    _serving_sdpa = False
    while _replaced:
        interface, function = _replaced.popitem()
        interface.register("sdpa", function)


def _attention_forward():
    from torch_mtl4.integrations.attention import attention_forward

    return attention_forward


def _create_mask():
    from torch_mtl4.integrations.masks import create_mask

    return create_mask


_INTERFACES = {
    "transformers.modeling_utils": ("AttentionInterface", _attention_forward),
    "transformers.masking_utils": ("AttentionMaskInterface", _create_mask),
}


def _register_in(module) -> None:
    interface_name, function_of_ours = _INTERFACES[module.__name__]
    interface, ours = getattr(module, interface_name), function_of_ours()
    interface.register(ATTENTION_NAME, ours)
    if _serving_sdpa and interface not in _replaced:
        _replaced[interface] = interface()["sdpa"]
        interface.register("sdpa", ours)
