// matmul2d over inline tensors, for every element type, scope and transposition.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

template <typename T> using in_device = tensor<device T, dextents<int, 2>, tensor_inline>;

struct Sizes { int m, n, k, row_a, row_b; };

template <typename L, typename R, typename D, typename Scope, int TM, int TN, bool TL, bool TR>
kernel void multiply(typename in_device<L>::data_handle_type a [[buffer(0)]], typename in_device<R>::data_handle_type b [[buffer(1)]],
                     device D* c [[buffer(2)]], constant Sizes& s [[buffer(3)]], uint2 tg [[threadgroup_position_in_grid]]) {
    auto A = in_device<L>(a, TL ? dextents<int, 2>(s.m, s.k) : dextents<int, 2>(s.k, s.m), array<int, 2>{1, s.row_a});
    auto B = in_device<R>(b, TR ? dextents<int, 2>(s.k, s.n) : dextents<int, 2>(s.n, s.k), array<int, 2>{1, s.row_b});
    auto C = in_device<D>(c, dextents<int, 2>(s.n, s.m), array<int, 2>{1, s.n});
    const int m = tg.y * TM, n = tg.x * TN;
    auto sa = TL ? A.slice(m, 0) : A.slice(0, m);
    auto sb = TR ? B.slice(0, n) : B.slice(n, 0);
    auto sc = C.slice(n, m);
    constexpr auto d = matmul2d_descriptor(TM, TN, static_cast<int>(dynamic_extent), TL, TR, false, matmul2d_descriptor::mode::multiply);
    matmul2d<d, Scope> op;
    op.run(sa, sb, sc);
}

// The same through a cooperative destination, with a static K and accumulation.
template <typename L, typename R, typename D, typename Scope, int TM, int TN, bool TL, bool TR>
kernel void accumulate(device L* a [[buffer(0)]], device R* b [[buffer(1)]], device D* c [[buffer(2)]], constant Sizes& s [[buffer(3)]],
                       uint2 tg [[threadgroup_position_in_grid]]) {
    auto A = in_device<L>(a, TL ? dextents<int, 2>(s.m, s.k) : dextents<int, 2>(s.k, s.m), array<int, 2>{1, s.row_a});
    auto B = in_device<R>(b, TR ? dextents<int, 2>(s.k, s.n) : dextents<int, 2>(s.n, s.k), array<int, 2>{1, s.row_b});
    auto C = in_device<D>(c, dextents<int, 2>(s.n, s.m), array<int, 2>{1, s.n});
    const int m = tg.y * TM, n = tg.x * TN;
    constexpr auto d = matmul2d_descriptor(TM, TN, 32, TL, TR, false, matmul2d_descriptor::mode::multiply_accumulate);
    matmul2d<d, Scope> op;
    auto sc = C.slice(n, m);
    auto sum = op.template get_destination_cooperative_tensor<in_device<L>, in_device<R>, D>();
    for (auto it = sum.begin(); it != sum.end(); it++) if (sum.is_valid_element(it)) *it = D(0);
    for (int k = 0; k < s.k; k += 32) {
        auto sa = TL ? A.slice(m, k) : A.slice(k, m);
        auto sb = TR ? B.slice(k, n) : B.slice(n, k);
        op.run(sa, sb, sum);
    }
    sum.store(sc);
}

// Both operands from registers: one simdgroup, one tile.
template <typename T, int TM, int TN, int TK, bool TL, bool TR>
kernel void cooperative(device T* a [[buffer(0)]], device T* b [[buffer(1)]], device float* c [[buffer(2)]]) {
    auto A = tensor(a, TL ? dextents<int, 2>(TM, TK) : dextents<int, 2>(TK, TM));
    auto B = tensor(b, TR ? dextents<int, 2>(TK, TN) : dextents<int, 2>(TN, TK));
    auto C = tensor(c, dextents<int, 2>(TN, TM));
    constexpr auto d = matmul2d_descriptor(TM, TN, TK, TL, TR, false, matmul2d_descriptor::mode::multiply);
    matmul2d<d, execution_simdgroup> op;
    auto ca = op.template get_left_input_cooperative_tensor<T, T, float>();
    auto cb = op.template get_right_input_cooperative_tensor<T, T, float>();
    auto cc = op.template get_destination_cooperative_tensor<decltype(A), decltype(B), float>();
    ca.load(A);
    cb.load(B);
    op.run(ca, cb, cc);
    cc.store(C);
}

// Blocks of 32 along K share a scale.
template <typename F> using scaled = tensor<device F, dextents<int, 2>, tensor_inline, tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 32, 1>>;
template <typename F> using scaled_handle = tensor<device F, dextents<int, 2>, tensor_handle, tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 32, 1>>;
using scales = tensor_blockwise<tensor_plane_scales, device metal_fp8_ue8m0_format, 32, 1>;

template <typename F, typename A, typename B, typename C> inline void multiply_scaled(A a, B b, C c, uint2 tg, int k_step) {
    constexpr auto d = matmul2d_descriptor(32, 32, static_cast<int>(dynamic_extent), false, true, false, matmul2d_descriptor::mode::multiply);
    matmul2d<d, execution_simdgroups<2>> op;
    auto sa = a.slice(k_step, tg.y * 32);
    auto sb = b.slice(k_step, tg.x * 32);
    auto sc = c.slice(tg.x * 32, tg.y * 32);
    op.run(sa, sb, sc);
}
template <typename F>
kernel void scale_right(device half* a [[buffer(0)]], device uchar* b [[buffer(1)]], device uchar* sb [[buffer(2)]], device float* c [[buffer(3)]],
                        constant int4& mnk [[buffer(4)]], uint2 tg [[threadgroup_position_in_grid]]) {
    in_device<half> A(a, dextents<int, 2>(mnk.z, mnk.x));
    scaled<F> B(b, dextents<int, 2>(mnk.z, mnk.y), array<int, 2>{1, mnk.z}, scales(sb));
    in_device<float> C(c, dextents<int, 2>(mnk.y, mnk.x));
    multiply_scaled<F>(A, B, C, tg, mnk.w);
}
template <typename F>
kernel void scale_both(scaled_handle<F> a [[buffer(0)]], scaled_handle<F> b [[buffer(1)]], device float* c [[buffer(2)]],
                       constant int4& mnk [[buffer(3)]], uint2 tg [[threadgroup_position_in_grid]]) {
    static_assert(is_tensor_handle_v<scaled_handle<F>> && !has_tensor_offset_v<scaled_handle<F>>);
    in_device<float> C(c, dextents<int, 2>(mnk.y, mnk.x));
    multiply_scaled<F>(a, b, C, tg, mnk.w);
}
#define SCALED(name, F) \
    template [[host_name("scale_right_" #name)]] kernel void scale_right<F>(device half*, device uchar*, device uchar*, device float*, constant int4&, uint2); \
    template [[host_name("scale_both_" #name)]] kernel void scale_both<F>(scaled_handle<F>, scaled_handle<F>, device float*, constant int4&, uint2);
SCALED(e4m3, metal_fp8_e4m3_format)
SCALED(e5m2, metal_fp8_e5m2_format)
SCALED(e2m1, metal_fp4_e2m1_format)

// A handle that lies in a buffer, as the host writes a resource ID into one.
struct Bindless { tensor<device half, dextents<int, 2>> a; };
kernel void bindless(constant Bindless& args [[buffer(0)]], device float* out [[buffer(1)]]) {
    auto t = args.a;
    static_assert(sizeof(Bindless) == 8);
    auto s = t.slice(1, 2);
    static_assert(has_tensor_offset_v<decltype(s)>);
    out[0] = t.extents().extent(0);
    out[1] = t.get_extent(1);
    out[2] = t[3, 4];
    out[3] = s[0, 0];
    out[4] = s.get_extent(0);
    out[5] = t.get_stride_bytes(1);
}

// A small network for one thread: its input and weights of 8 in thread memory.
kernel void thread_network(device const half* x [[buffer(0)]], device half* w [[buffer(1)]], device float* out [[buffer(2)]],
                           uint i [[thread_position_in_grid]]) {
    half in[8];
    float hidden[8];
    for (int k = 0; k < 8; k++) in[k] = x[i * 8 + k];
    tensor<thread half, extents<int, 8, 1>, tensor_inline> I(in, extents<int, 8, 1>());
    tensor<device half, dextents<int, 2>, tensor_inline> W(w, dextents<int, 2>(8, 8));
    tensor<thread float, extents<int, 8, 1>, tensor_inline> H(hidden, extents<int, 8, 1>());
    constexpr auto d = matmul2d_descriptor(1, 8, 8, false, false, false, matmul2d_descriptor::mode::multiply);
    matmul2d<d, execution_thread> op;
    op.run(I, W, H);
    for (int k = 0; k < 8; k++) out[i * 8 + k] = max(hidden[k], 0.0f);
}

// Reductions and the mapping from elements to them.
template <int TM, int TN> kernel void reductions(device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* c [[buffer(2)]],
                                                 device float* rows [[buffer(3)]], device float* columns [[buffer(4)]],
                                                 ushort lane [[thread_index_in_simdgroup]]) {
    auto A = tensor(a, dextents<int, 2>(32, TM));
    auto B = tensor(b, dextents<int, 2>(TN, 32));
    auto C = tensor(c, dextents<int, 2>(TN, TM));
    constexpr auto d = matmul2d_descriptor(TM, TN, 32, false, false, false, matmul2d_descriptor::mode::multiply);
    matmul2d<d, execution_simdgroup> op;
    auto s = op.template get_destination_cooperative_tensor<decltype(A), decltype(B), float>();
    op.run(A, B, s);
    auto r = op.template get_row_reduction_destination_cooperative_tensor<decltype(A), decltype(B), float>();
    auto q = op.template get_column_reduction_destination_cooperative_tensor<decltype(A), decltype(B), float>();
    reduce_rows(s, r, reduction_operation::max, reduction_operation_identity<float>::max_identity);
    reduce_columns(s, q);
    for (ushort i = 0; i < r.get_capacity(); i++) if (r.is_valid_element(i)) rows[lane * TM + r.get_multidimensional_index(i)[0]] = r[i];
    for (ushort i = 0; i < q.get_capacity(); i++) if (q.is_valid_element(i)) columns[lane * TN + q.get_multidimensional_index(i)[0]] = q[i];
    if (is_iterator_compatible(s, r))
        for (auto it = s.begin(); it != s.end(); it++) if (s.is_valid_element(it)) *it -= *r.map_iterator(it);
    s.store(C);
}
template [[host_name("reductions_16_32")]] kernel void reductions<16, 32>(device half*, device half*, device float*, device float*, device float*, ushort);
template [[host_name("reductions_32_16")]] kernel void reductions<32, 16>(device half*, device half*, device float*, device float*, device float*, ushort);
template [[host_name("reductions_16_64")]] kernel void reductions<16, 64>(device half*, device half*, device float*, device float*, device float*, ushort);
