#include "runtime/pipelines.h"

#include <torch/headeronly/util/Exception.h>

#include <map>
#include <mutex>

#include "runtime/held.h"
#include "runtime/sources.h"
#include "runtime/text.h"

namespace mtl4::runtime {
namespace {

std::string language_name(Language language) {
  const int number = static_cast<int>(language);
  return std::to_string(number / 10) + "." + std::to_string(number % 10);
}

// By number: an SDK older than the system that runs this may lack the name.
MTLLanguageVersion language_version(Language language) {
  const NSUInteger number = static_cast<NSUInteger>(language);
  return static_cast<MTLLanguageVersion>((number / 10) << 16 | number % 10);
}

Held<id<MTLLibrary>> compile(id<MTLDevice> device, const PipelineKey& key) {
  const auto options = Held<MTLCompileOptions*>::owned([[MTLCompileOptions alloc] init]);
  // The default depends on the SDK that the host process was linked against.
  options.get().languageVersion = language_version(key.language);
  // Formats and masks are made of NaN and infinity, which Metal's default assumes away.
  if (@available(macOS 15.0, *)) {
    options.get().mathMode = MTLMathModeSafe;
  } else {
    options.get().fastMathEnabled = NO;
  }
  const std::string text(key.text.empty() ? metal_source(key.source) : key.text);
  NSError* error = nil;
  auto library = Held<id<MTLLibrary>>::owned([device newLibraryWithSource:ns_string(text)
                                                                  options:options.get()
                                                                    error:&error]);
  if (!library) throw SourceError("torch_mtl4: Metal cannot compile " + to_string(key) + ":\n" + text_of(error));
  return library;
}

Held<id<MTLFunction>> specialized(id<MTLLibrary> library, const PipelineKey& key) {
  const auto values = Held<MTLFunctionConstantValues*>::owned([[MTLFunctionConstantValues alloc] init]);
  for (const FunctionConstant& constant : key.constants) {
    const bool flag = constant.value != 0;
    const void* value = constant.is_bool ? static_cast<const void*>(&flag) : &constant.value;
    [values.get() setConstantValue:value
                              type:constant.is_bool ? MTLDataTypeBool : MTLDataTypeInt
                           atIndex:static_cast<NSUInteger>(constant.index)];
  }
  NSError* error = nil;
  auto function = Held<id<MTLFunction>>::owned([library newFunctionWithName:ns_string(key.kernel)
                                                             constantValues:values.get()
                                                                      error:&error]);
  STD_TORCH_CHECK(function, "torch_mtl4: Metal cannot specialize ", to_string(key), ":\n", text_of(error));
  return function;
}

struct Cache {
  std::mutex mutex;
  // By what they are made of, as text.
  std::map<std::pair<id<MTLDevice>, std::string>, Held<id<MTLLibrary>>> libraries;
  std::map<std::pair<id<MTLDevice>, std::string>, Held<id<MTLComputePipelineState>>> pipelines;
};

Cache& cache() {
  static auto* const cache = new Cache;  // never freed: at exit the device may be gone before it
  return *cache;
}

}  // namespace

std::string to_string(const PipelineKey& key) {
  std::string constants;
  for (const FunctionConstant& c : key.constants)
    constants += (constants.empty() ? " [" : ", ") + c.name + "=" + std::to_string(c.value);
  if (!constants.empty()) constants += "]";
  return key.source + "/" + key.kernel + constants + " in Metal " + language_name(key.language);
}

id<MTLComputePipelineState> pipeline(id<MTLDevice> device, const PipelineKey& key) {
  @autoreleasepool {
    const std::lock_guard<std::mutex> lock(cache().mutex);
    auto& pipeline = cache().pipelines[{device, to_string(key) + "\n" + key.text}];
    if (pipeline) return pipeline.get();
    auto& library = cache().libraries[{device, key.source + " " + language_name(key.language) + "\n" + key.text}];
    if (!library) library = compile(device, key);
    const auto function = specialized(library.get(), key);
    NSError* error = nil;
    pipeline = Held<id<MTLComputePipelineState>>::owned([device newComputePipelineStateWithFunction:function.get()
                                                                                              error:&error]);
    STD_TORCH_CHECK(pipeline, "torch_mtl4: Metal cannot build a pipeline of ", to_string(key), ":\n", text_of(error));
    return pipeline.get();
  }
}

}  // namespace mtl4::runtime
