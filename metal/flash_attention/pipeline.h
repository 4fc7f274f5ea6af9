// What a pipeline knows when it is built, and where its kernels find their params.
#pragma once

#include "flash_attention/params.h"

constant bool has_mask [[function_constant(FLASH_ATTENTION_HAS_MASK)]];
constant int mask_type [[function_constant(FLASH_ATTENTION_MASK_TYPE)]];
constant bool has_sinks [[function_constant(FLASH_ATTENTION_HAS_SINKS)]];
constant bool has_alibi [[function_constant(FLASH_ATTENTION_HAS_ALIBI)]];
constant bool has_softcap [[function_constant(FLASH_ATTENTION_HAS_SOFTCAP)]];
constant bool splits_keys [[function_constant(FLASH_ATTENTION_SPLITS_KEYS)]];
constant bool gives_result [[function_constant(FLASH_ATTENTION_GIVES_RESULT)]];
constant bool weights_in_memory [[function_constant(FLASH_ATTENTION_WEIGHTS_IN_MEMORY)]];

using ParamsRef = constant FlashAttentionParams&;
