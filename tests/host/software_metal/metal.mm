// Metal's objects without a GPU. Kernels go to the runner; what a GPU, or Metal's validation, would not forgive is an
// exception.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "interface.h"

NSString* const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

namespace {

constexpr NSUInteger kSlots = 31, kMaxBytes = 4096;
constexpr size_t kErrorSize = 1 << 16;
SoftwareRunner runner;

[[noreturn]] void violation(const std::string& what) { throw std::runtime_error("software Metal: " + what); }

uint64_t next_id() {
  static std::mutex mutex;
  static uint64_t last = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  return ++last;
}

std::mutex alive_mutex;
std::map<std::string, int64_t> alive;
void count(id object, int by) {
  const std::lock_guard<std::mutex> lock(alive_mutex);
  alive[object_getClassName(object)] += by;
}

// Calls the runner; false sets the NSError as Metal would.
template <typename F>
bool ask(NSError** error, const F& call) {
  std::vector<char> text(kErrorSize);
  if (call(text.data(), text.size())) return true;
  if (error)
    *error = [NSError errorWithDomain:MTLLibraryErrorDomain
                                 code:3
                             userInfo:@{NSLocalizedDescriptionKey : [NSString stringWithUTF8String:text.data()]}];
  return false;
}

}  // namespace

// Objects of a class are counted while they live; BEGIN and END are what else there is to do for them.
#define COUNTED(BEGIN, END) \
  -(instancetype)init {     \
    self = [super init];    \
    count(self, 1);         \
    BEGIN;                  \
    return self;            \
  }                         \
  -(void)dealloc {          \
    count(self, -1);        \
    END;                    \
    [super dealloc];        \
  }

@interface SoftwareObject : NSObject
@end
@implementation SoftwareObject
COUNTED(, )
@end

// Classes that are made by name are stood in for by a subclass of their own, which has room for what they hold.
#define STANDS_IN_FOR(NAME)                                   \
  @implementation NAME                                        \
  +(instancetype)allocWithZone : (NSZone*)zone {              \
    return NSAllocateObject([Software##NAME class], 0, zone); \
  }                                                           \
  @end

@interface SoftwareMTLArchitecture : MTLArchitecture {
 @public
  NSString* text;
}
@end
@implementation SoftwareMTLArchitecture
- (NSString*)name {
  return text;
}
@end
STANDS_IN_FOR(MTLArchitecture)

@interface SoftwareMTLCompileOptions : MTLCompileOptions {
 @public
  MTLLanguageVersion language;
  BOOL safe;
}
@end
@implementation SoftwareMTLCompileOptions
- (void)setLanguageVersion:(MTLLanguageVersion)version {
  language = version;
}
- (void)setMathMode:(MTLMathMode)mode {
  safe = mode == MTLMathModeSafe;
}
- (void)setFastMathEnabled:(BOOL)enabled {
  safe = !enabled;
}
COUNTED(, )
@end
STANDS_IN_FOR(MTLCompileOptions)

@interface SoftwareMTLFunctionConstantValues : MTLFunctionConstantValues {
 @public
  std::string* lines;
}
@end
@implementation SoftwareMTLFunctionConstantValues
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  std::string text;
  if (type == MTLDataTypeBool) {
    text = "bool " + std::to_string(*static_cast<const uint8_t*>(value));
  } else if (type == MTLDataTypeInt) {
    text = "int " + std::to_string(*static_cast<const int32_t*>(value));
  } else {
    violation("a function constant of type " + std::to_string(type));
  }
  *lines += std::to_string(index) + " " + text + "\n";
}
COUNTED(lines = new std::string, delete lines)
@end
STANDS_IN_FOR(MTLFunctionConstantValues)

@interface SoftwareDevice : NSObject <MTLDevice> {
 @public
  uint64_t identity;
  SoftwareMTLArchitecture* architecture;
}
@end

@interface SoftwareBuffer : SoftwareObject <MTLBuffer> {
 @public
  char* memory;
  NSUInteger bytes;
  id<MTLDevice> owner;
}
@end
@implementation SoftwareBuffer
- (void*)contents {
  return memory;
}
- (NSUInteger)length {
  return bytes;
}
- (id<MTLDevice>)device {
  return owner;
}
- (void)dealloc {
  std::free(memory);
  [super dealloc];
}
@end

@interface SoftwareLibrary : SoftwareObject <MTLLibrary> {
 @public
  uint64_t identity;
}
@end
@interface SoftwareFunction : SoftwareObject <MTLFunction> {
 @public
  uint64_t identity;
}
@end
@interface SoftwarePipeline : SoftwareObject <MTLComputePipelineState> {
 @public
  uint64_t identity, maxThreads;
}
@end

@implementation SoftwareLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)given
                                 error:(NSError**)error {
  const uint64_t function_id = next_id();
  const char* constants = ((SoftwareMTLFunctionConstantValues*)given)->lines->c_str();
  const auto call = [&](char* text, size_t size) {
    return runner.specialize(identity, function_id, name.UTF8String, constants, text, size);
  };
  if (!ask(error, call)) return nil;
  SoftwareFunction* function = [SoftwareFunction new];
  function->identity = function_id;
  return function;
}
@end
@implementation SoftwareFunction
@end
@implementation SoftwarePipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return maxThreads;
}
- (NSUInteger)threadExecutionWidth {
  return 32;
}
@end

@interface SoftwareEncoder : SoftwareObject <MTLComputeCommandEncoder> {
 @public
  BOOL ofTorch, ended;
  SoftwarePipeline* pipeline;
  std::array<SoftwareSlot, kSlots> slots;
  std::array<std::array<char, kMaxBytes>, kSlots> bytes;
}
@end
@implementation SoftwareEncoder
- (void)check {
  if (ended) violation("an encoder is used after endEncoding");
  if (ofTorch && !software_metal_on_queue()) violation("torch's encoder is used outside of its queue");
}
// Metal itself keeps what was bound. Here a kernel has nothing but what was bound for it, so that nothing is forgotten.
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self check];
  if (!state) violation("the pipeline is nil");
  pipeline = (SoftwarePipeline*)state;
  slots.fill({});
}
- (void)setBuffer:(id<MTLBuffer>)given offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self check];
  if (index >= kSlots) violation("a buffer is bound at index " + std::to_string(index));
  auto* const buffer = (SoftwareBuffer*)given;
  if (buffer && offset >= buffer->bytes)
    violation("offset " + std::to_string(offset) + " lies outside of a buffer of " + std::to_string(buffer->bytes));
  slots[index] =
      buffer ? SoftwareSlot{kBuffer, buffer->memory, buffer->bytes, offset} : SoftwareSlot{kNil, nullptr, 0, 0};
}
- (void)setBytes:(const void*)given length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self check];
  if (index >= kSlots) violation("bytes are bound at index " + std::to_string(index));
  if (length == 0 || length > kMaxBytes) violation("setBytes with " + std::to_string(length) + " bytes");
  std::memcpy(bytes[index].data(), given, length);
  slots[index] = {kBytes, bytes[index].data(), length, 0};
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
  if (groups.width * groups.height * groups.depth == 0) violation("a dispatch of no threadgroups");
  [self dispatchGroups:groups orThreads:MTLSizeMake(0, 0, 0) threadsPerThreadgroup:threads];
}
- (void)dispatchThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)threads {
  if (grid.width * grid.height * grid.depth == 0) violation("a dispatch of no threads");
  [self dispatchGroups:MTLSizeMake(0, 0, 0) orThreads:grid threadsPerThreadgroup:threads];
}
- (void)dispatchGroups:(MTLSize)groups orThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)threads {
  [self check];
  if (!pipeline) violation("a dispatch without a pipeline");
  const uint64_t total = threads.width * threads.height * threads.depth;
  if (total == 0 || total > pipeline->maxThreads)
    violation(std::to_string(total) + " threads per threadgroup of at most " + std::to_string(pipeline->maxThreads));
  SoftwareDispatch dispatch = {pipeline->identity,
                               {groups.width, groups.height, groups.depth},
                               {threads.width, threads.height, threads.depth},
                               {grid.width, grid.height, grid.depth},
                               {}};
  std::memcpy(dispatch.slots, slots.data(), sizeof dispatch.slots);
  std::vector<char> error(kErrorSize);
  if (!runner.dispatch(&dispatch, error.data(), error.size())) violation(error.data());
}
- (void)endEncoding {
  [self check];
  if (ofTorch) violation("torch's encoder is ended by somebody else");
  ended = YES;
}
@end

// A queue of its own, as a self-check has. Kernels ran when they were encoded; what counts is the order of calls.
@interface SoftwareCommandBuffer : SoftwareObject <MTLCommandBuffer> {
  SoftwareEncoder* encoder;
  BOOL committed;
}
@end
@implementation SoftwareCommandBuffer
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  if (encoder && !encoder->ended) violation("a command buffer has two encoders at once");
  encoder = [[SoftwareEncoder new] autorelease];
  return encoder;
}
- (void)commit {
  if (committed || !encoder || !encoder->ended) violation("commit in the wrong order");
  committed = YES;
}
- (void)waitUntilCompleted {
  if (!committed) violation("waiting for a command buffer that was never committed");
}
- (NSError*)error {
  return nil;
}
@end
@interface SoftwareQueue : SoftwareObject <MTLCommandQueue>
@end
@implementation SoftwareQueue
- (id<MTLCommandBuffer>)commandBuffer {
  return [[SoftwareCommandBuffer new] autorelease];
}
@end

@implementation SoftwareDevice
- (NSString*)name {
  return @"software Metal";
}
- (MTLArchitecture*)architecture {
  return architecture;
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source options:(MTLCompileOptions*)given error:(NSError**)error {
  auto* const options = (SoftwareMTLCompileOptions*)given;
  const uint64_t library_id = next_id();
  const auto call = [&](char* text, size_t size) {
    return runner.compile(identity, library_id, source.UTF8String, options->language, options->safe, text, size);
  };
  if (!ask(error, call)) return nil;
  SoftwareLibrary* library = [SoftwareLibrary new];
  library->identity = library_id;
  return library;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError**)error {
  const uint64_t pipeline_id = next_id();
  uint64_t max_threads = 0;
  const auto call = [&](char* text, size_t size) {
    return runner.pipeline(((SoftwareFunction*)function)->identity, pipeline_id, &max_threads, text, size);
  };
  if (!ask(error, call)) return nil;
  SoftwarePipeline* pipeline = [SoftwarePipeline new];
  pipeline->identity = pipeline_id;
  pipeline->maxThreads = max_threads;
  return pipeline;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  SoftwareBuffer* buffer = [SoftwareBuffer new];
  buffer->bytes = length;
  buffer->memory = static_cast<char*>(std::aligned_alloc(256, (length + 255) / 256 * 256));
  std::memset(buffer->memory, 0xFF, length);  // NaN, as a float
  buffer->owner = self;
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)from length:(NSUInteger)length options:(MTLResourceOptions)options {
  auto* const buffer = (SoftwareBuffer*)[self newBufferWithLength:length options:options];
  std::memcpy(buffer->memory, from, length);
  return buffer;
}
- (id<MTLCommandQueue>)newCommandQueue {
  return [SoftwareQueue new];
}
@end

static SoftwareDevice* current_device = nil;
static NSOperatingSystemVersion current_system = {14, 0, 0};

extern "C" NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) {
  return current_device ? [[NSArray alloc] initWithObjects:current_device, nil] : [NSArray new];
}

@implementation NSProcessInfo (SoftwareMetal)
- (NSOperatingSystemVersion)operatingSystemVersion {
  return current_system;
}
@end

extern "C" {

void software_metal_set_runner(const SoftwareRunner* given) { runner = *given; }

void software_metal_set_device(uint64_t id, const char* architecture, int macos_major, int macos_minor) {
  @autoreleasepool {
    static auto* const devices = new std::map<uint64_t, SoftwareDevice*>;  // each may be asked for by its buffers
    SoftwareDevice*& device = (*devices)[id];
    if (!device) {
      device = [SoftwareDevice new];
      device->identity = id;
      device->architecture = [SoftwareMTLArchitecture new];
      device->architecture->text = [[NSString alloc] initWithUTF8String:architecture];
    }
    current_device = device;
    current_system = {macos_major, macos_minor, 0};
  }
}

int64_t software_metal_alive(const char* class_name) {
  const std::lock_guard<std::mutex> lock(alive_mutex);
  return alive[class_name];
}

void* software_metal_new_buffer(size_t bytes) {
  if (software_metal_on_queue()) violation("a tensor is made inside a command block");
  return [current_device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
}

void* software_metal_torch_encoder() {
  static SoftwareEncoder* const encoder = [SoftwareEncoder new];
  encoder->ofTorch = YES;
  return encoder;
}

void software_metal_release(void* object) { [(id)object release]; }

char* software_metal_contents(void* buffer) { return ((SoftwareBuffer*)buffer)->memory; }
}
