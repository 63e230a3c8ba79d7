// The blocks of a Llama-like decoder on a CPU, for rows that grow by one token or several.
//
// The products of matrices are torch's: oneDNN's where a matrix is packed. All between two products is one pass over
// memory here, where torch takes five to fifteen, each with a start and a barrier of its own. Numbers are rounded to
// the format of the model where torch rounds them, but for sums inside one formula, which stay in float32.
//
// Attention reads first what the tokens of several rows share, then the tail of each row.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "attention.h"
#include "lanes.h"
#include "threads.h"

namespace metagen {

using at::Tensor;
using Optional = std::optional<Tensor>;

// A linear map: plain [out, in], packed by oneDNN for `few` rows or more, or both; and what an adapter adds, to all rows
// or, by the number of the adapter, to its own. The matrices of adapters are whole multiples of LANES, and contiguous.
struct Matrix {
    Optional plain, packed, bias;
    int64_t few;
    Optional down, up;
    std::map<int64_t, std::pair<Tensor, Tensor>> adapters;
};

// Adapters of a batch by number, each with the tokens that have it; none: all have.
using Wearers = std::vector<std::pair<int64_t, Optional>>;

struct Layer {
    Tensor norm;
    Matrix qkv;
    Optional qk_norm;
    Matrix out;
    Tensor mlp_norm;
    Matrix up, down;
};

// Rows, and numbers of a matrix, up to which the start of a library's product takes longer than the product.
constexpr int FEW = 8;
constexpr int64_t SMALL = 1 << 18;

template <typename T>
T* data(const Tensor& x) {
    return static_cast<T*>(x.data_ptr());
}

// y [R, out] = x [R, in] times the transpose of a matrix [out, in].
template <typename T, int R>
void multiply_few(const T* x, const T* matrix, const T* bias, T* y, int64_t out, int64_t in) {
    constexpr int SIDE = R <= 6 ? 4 : 2;  // outputs side by side: as many as there are registers for
    for (int64_t o = 0; o < out; o += LANES) {
        Floats parts[R][LANES];
        for (int64_t i = 0; i < LANES; i += SIDE) {
            Floats dot[R][SIDE];
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < SIDE; ++s) dot[r][s] = Floats{};
            for (int64_t j = 0; j < in; j += LANES) {
                Floats by[SIDE];
                for (int s = 0; s < SIDE; ++s) by[s] = load(matrix + (o + i + s) * in + j);
                for (int r = 0; r < R; ++r) {
                    const Floats here = load(x + r * in + j);
                    for (int s = 0; s < SIDE; ++s) dot[r][s] += by[s] * here;
                }
            }
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < SIDE; ++s) parts[r][i + s] = dot[r][s];
        }
        const Floats more = bias ? load(bias + o) : Floats{};
        for (int r = 0; r < R; ++r) store(y + r * out + o, sums(parts[r]) + more);
    }
}

template <typename T>
Tensor multiply_few(const Tensor& x, const Tensor& matrix, const Optional& bias) {
    const int64_t out = matrix.size(0), in = matrix.size(1);
    const Tensor y = at::empty({x.size(0), out}, x.options());
    const T *from = data<T>(x), *by = data<T>(matrix), *more = bias ? data<T>(*bias) : nullptr;
    T* to = data<T>(y);
    const auto all_rows = [&]<int... R>(std::integer_sequence<int, R...>) {
        ((x.size(0) == R + 1 ? multiply_few<T, R + 1>(from, by, more, to, out, in) : void()), ...);
    };
    all_rows(std::make_integer_sequence<int, FEW>());
    return y;
}

// oneDNN's product with a matrix that it has packed.
inline Tensor multiply_packed(const Matrix& by, const Tensor& x) {
    using Linear = Tensor(
        const Tensor&, const Tensor&, const Optional&, std::string_view, c10::List<std::optional<at::Scalar>>,
        std::optional<std::string_view>
    );
    static const auto linear =
        c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Linear>();
    const c10::List<std::optional<at::Scalar>> nothing;
    return linear.call(x, *by.packed, by.bias, "none", nothing, std::nullopt);
}

template <typename T>
Tensor multiply_dense(const Matrix& by, const Tensor& x) {
    const bool packs = by.packed && (!by.plain || x.size(0) >= by.few);
    // In float32, few rows beat oneDNN's calls also where these beat torch's plain product.
    if (x.size(0) <= FEW && by.plain && (!packs || std::is_same_v<T, float>)) {
        const bool whole = by.plain->size(0) % LANES == 0 && by.plain->size(1) % LANES == 0;
        if (by.plain->numel() <= SMALL && whole && by.plain->is_contiguous())
            return multiply_few<T>(x, *by.plain, by.bias);
    }
    return packs ? multiply_packed(by, x) : at::linear(x, *by.plain, by.bias);
}

template <typename T>
Tensor multiply(const Matrix& by, const Tensor& x, const Wearers& wearers) {
    const auto small = [](const Tensor& x, const Tensor& by) {
        return x.size(0) <= FEW && by.numel() <= SMALL ? multiply_few<T>(x, by, {}) : at::linear(x, by);
    };
    const auto more = [&](const Tensor& x, const Tensor& down, const Tensor& up) { return small(small(x, down), up); };
    const Tensor y = multiply_dense<T>(by, x);
    if (by.down) y.add_(more(x, *by.down, *by.up));
    for (const auto& [number, tokens] : wearers) {
        const auto found = by.adapters.find(number);
        if (found == by.adapters.end()) continue;
        const auto& [down, up] = found->second;
        if (tokens)
            y.index_add_(0, *tokens, more(x.index_select(0, *tokens), down, up));
        else
            y.add_(more(x, down, up));
    }
    return y;
}

// One row of the batch: its tokens, the place of the first in the row, and the tail that they are written into.
struct Row {
    int64_t first, count, position, old, tail, capacity;
};

// Frozen keys and values of `length` tokens. Strides in numbers: of layers, from keys to values, of heads, of tokens.
struct Piece {
    int64_t address, layer, values, head, token, length;
};

// Tokens from … to-1 of a row.
struct Part {
    const Row* row;
    int64_t from, to;
};

// Tokens that read the same pieces, and then each the tail of its row.
struct Item {
    int64_t part, parts, piece, pieces, tokens;
};

// Tokens of an item: so many queries meet keys and values while a cache of the first level holds them.
constexpr int64_t TOKENS = 16;
class Blocks {
  public:
    Blocks(
        int64_t heads, int64_t kv_heads, int64_t head_dim, double eps, Tensor turns, std::vector<Layer> layers,
        Tensor norm, int64_t ff
    )
        : heads_(heads), kv_heads_(kv_heads), d_(head_dim), eps_(eps), turns_(turns), layers_(std::move(layers)),
          norm_(norm) {
        const int64_t width = norm.size(0);
        const int64_t attention = 2 * (heads + kv_heads) * head_dim * width;
        weights_ = static_cast<int64_t>(layers_.size()) * (attention + 3 * width * ff);
    }

    // x [N, width] behind all blocks and the last norm; kv [layers, 2, places, d] holds the tails.
    // rows: [R, 6], as in Row. order: [R], rows that read the same pieces side by side.
    // groups: [G, 4]: from and to in `order`, from and to in `pieces` [P, 6]. wearers: of the N tokens.
    Tensor run(
        const Tensor& x, const Tensor& kv, const Tensor& rows, const Tensor& order, const Tensor& groups,
        const Tensor& pieces, const Wearers& wearers
    ) const {
        const Threads threads(x.size(0) * weights_);
        return x.scalar_type() == at::kFloat ? by_dim<float>(x, kv, rows, order, groups, pieces, wearers)
                                             : by_dim<BFloat16>(x, kv, rows, order, groups, pieces, wearers);
    }

    // Places that there are rotations for.
    int64_t context() const { return turns_.size(0); }

  private:
    int64_t heads_, kv_heads_, d_;
    double eps_;
    Tensor turns_;
    std::vector<Layer> layers_;
    Tensor norm_;
    int64_t weights_;

    template <typename T, typename... Rest>
    Tensor by_dim(const Rest&... rest) const {
        switch (d_) {
            case 16: return run_as<T, 1>(rest...);
            case 32: return run_as<T, 2>(rest...);
            case 64: return run_as<T, 4>(rest...);
            case 80: return run_as<T, 5>(rest...);
            case 96: return run_as<T, 6>(rest...);
            case 128: return run_as<T, 8>(rest...);
            case 256: return run_as<T, 16>(rest...);
            default: throw std::invalid_argument("no heads of this size");
        }
    }

    template <typename T, int D>
    Tensor run_as(
        const Tensor& x, const Tensor& kv, const Tensor& rows, const Tensor& order, const Tensor& groups,
        const Tensor& pieces, const Wearers& wearers
    ) const {
        static_assert(sizeof(Row) == 6 * sizeof(int64_t) && sizeof(Piece) == 6 * sizeof(int64_t));
        const Row* row = reinterpret_cast<const Row*>(rows.data_ptr<int64_t>());
        const Piece* piece = reinterpret_cast<const Piece*>(pieces.data_ptr<int64_t>());
        check(row, rows.size(0));
        std::vector<Part> parts;
        std::vector<Item> items;
        share_out(row, order.data_ptr<int64_t>(), groups, parts, items);
        const int64_t meetings = count_meetings(parts, items, piece);
        const int64_t n = x.size(0), width = x.size(1);
        const Tensor y = at::empty(x.sizes(), x.options()), read = at::empty({n, heads_ * d_}, x.options());
        Optional added;
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            const Layer& layer = layers_[i];
            add_and_norm<T>(x, added, layer.norm, y, n, width);
            const Tensor qkv = multiply<T>(layer.qkv, y, wearers);
            T* tails = data<T>(kv) + i * 2 * kv.size(2) * d_;
            turn_and_write<T>(qkv, layer.qk_norm, row, rows.size(0), tails, tails + kv.size(2) * d_);
            attend<T, D>(qkv, i, parts, items, meetings, piece, tails, tails + kv.size(2) * d_, read);
            const Tensor out = multiply<T>(layer.out, read, wearers);
            add_and_norm<T>(x, out, layer.mlp_norm, y, n, width);
            added = multiply<T>(layer.down, gated<T>(multiply<T>(layer.up, y, wearers)), wearers);
        }
        add_and_norm<T>(x, added, norm_, y, n, width);
        return y;
    }

    // A row that went on behind its context, or behind its tail, would be read and written elsewhere.
    void check(const Row* row, int64_t rows) const {
        for (int64_t i = 0; i < rows; ++i)
            if (row[i].position + row[i].count > turns_.size(0) || row[i].old + row[i].count > row[i].capacity)
                throw std::out_of_range("a row is longer than the context of its model, or than its tail");
    }

    static void share_out(
        const Row* row, const int64_t* order, const Tensor& groups, std::vector<Part>& parts, std::vector<Item>& items
    ) {
        const int64_t* group = groups.data_ptr<int64_t>();
        for (int64_t g = 0; g < groups.size(0); ++g, group += 4) {
            Item item{0, 0, group[2], group[3], TOKENS};
            for (int64_t i = group[0]; i < group[1]; ++i) {
                const Row* one = row + order[i];
                for (int64_t from = 0; from < one->count;) {
                    if (item.tokens >= TOKENS) {
                        item.part = static_cast<int64_t>(parts.size());
                        item.parts = item.part;
                        item.tokens = 0;
                        items.push_back(item);
                    }
                    const int64_t to = std::min(one->count, from + TOKENS - item.tokens);
                    parts.push_back({one, from, to});
                    item.tokens += to - from;
                    item.parts = static_cast<int64_t>(parts.size());
                    items.back() = item;
                    from = to;
                }
            }
        }
    }

    // Pairs of a token and a key, or a value, that it reads.
    static int64_t count_meetings(const std::vector<Part>& parts, const std::vector<Item>& items, const Piece* piece) {
        int64_t found = 0;
        for (const Item& item : items) {
            for (int64_t p = item.piece; p < item.pieces; ++p) found += 2 * item.tokens * piece[p].length;
            for (int64_t p = item.part; p < item.parts; ++p)
                found += 2 * (parts[p].to - parts[p].from) * (parts[p].row->old + parts[p].to);
        }
        return found;
    }

    // x += added, and y = x normalised by its root mean square, times weight.
    template <typename T>
    void add_and_norm(
        const Tensor& x, const Optional& added, const Tensor& weight, const Tensor& y, int64_t n, int64_t width
    ) const {
        T *xs = data<T>(x), *ys = data<T>(y);
        const T* more = added ? data<T>(*added) : nullptr;
        const T* scale = data<T>(weight);
        for_all(n, width, [&](int64_t i) {
            T* at = xs + i * width;
            Floats squares = {};
            for (int64_t j = 0; j < width; j += LANES) {
                Floats here = load(at + j);
                if (more) {
                    here = rounded<T>(here + load(more + i * width + j));
                    store(at + j, here);
                }
                squares += here * here;
            }
            const Floats by = all(1 / std::sqrt(sum(squares) / static_cast<float>(width) + static_cast<float>(eps_)));
            for (int64_t j = 0; j < width; j += LANES)
                store(ys + i * width + j, load(at + j) * by * load(scale + j));
        });
    }

    // Norm and rotate queries and keys in place, and write keys and values into the tails.
    template <typename T>
    void turn_and_write(
        const Tensor& qkv, const Optional& qk_norm, const Row* row, int64_t rows, T* keys, T* values
    ) const {
        const int64_t rotated = heads_ + kv_heads_, width = (rotated + kv_heads_) * d_;
        T* all_of = data<T>(qkv);
        const T* scale = qk_norm ? data<T>(*qk_norm) : nullptr;
        const float* turns = turns_.data_ptr<float>();
        const auto one = [&](const Row& of, int64_t t) {
            T* token = all_of + (of.first + t) * width;
            const float* turn = turns + (of.position + t) * d_;
            for (int64_t h = 0; h < rotated; ++h) {
                T* x = token + h * d_;
                Floats by = all(1);
                if (scale) {
                    Floats squares = {};
                    for (int64_t j = 0; j < d_; j += LANES) squares += load(x + j) * load(x + j);
                    by = all(1 / std::sqrt(sum(squares) / static_cast<float>(d_) + static_cast<float>(eps_)));
                }
                for (int64_t j = 0; j < d_; j += LANES) {
                    Floats here = load(x + j);
                    if (scale) here = rounded<T>(here * by * load(scale + h * d_ + j));
                    store(x + j, turned(here, load(turn + j)));
                }
            }
            for (int64_t h = 0; h < kv_heads_; ++h) {
                const int64_t place = (of.tail + h * of.capacity + of.old + t) * d_;
                std::memcpy(keys + place, token + (heads_ + h) * d_, d_ * sizeof(T));
                std::memcpy(values + place, token + (rotated + h) * d_, d_ * sizeof(T));
            }
        };
        if (rows == qkv.size(0)) {
            for_all(rows, width, [&](int64_t i) { one(row[i], 0); });
        } else {
            for (int64_t i = 0; i < rows; ++i)
                for_all(row[i].count, width, [&](int64_t t) { one(row[i], t); });
        }
    }

    // The product of the complex numbers that lie side by side.
    static Floats turned(Floats x, Floats by) {
        const Floats real = shuffle<0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14>(by, by);
        const Floats imaginary = shuffle<17, 1, 19, 3, 21, 5, 23, 7, 25, 9, 27, 11, 29, 13, 31, 15>(by, -by);
        const Floats swapped = shuffle<1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14>(x, x);
        return x * real + swapped * imaginary;
    }

    template <typename T, int D>
    void attend(
        const Tensor& qkv, int64_t layer, const std::vector<Part>& parts, const std::vector<Item>& items,
        int64_t meetings, const Piece* pieces, const T* keys, const T* values, const Tensor& read
    ) const {
        constexpr int64_t d = D * LANES;
        const int64_t each = heads_ / kv_heads_, width = (heads_ + 2 * kv_heads_) * d;
        const T* from = data<T>(qkv);
        T* to = data<T>(read);
        const Floats scale = all(1 / std::sqrt(static_cast<float>(d)));
        const auto one = [&](const Item& item, int64_t h) {
            const int64_t queries = item.tokens * each;
            thread_local std::vector<float> query, found;
            thread_local std::vector<Read> reads;
            thread_local std::vector<int64_t> sees;
            query.resize(queries * d);
            found.assign(queries * d, 0);
            reads.assign(queries, Read());
            sees.resize(queries);
            const auto heads_of = [&](const auto& each_head) {
                int64_t q = 0;
                for (int64_t p = item.part; p < item.parts; ++p)
                    for (int64_t t = parts[p].from; t < parts[p].to; ++t)
                        for (int64_t j = 0; j < each; ++j, ++q)
                            each_head(q, parts[p].row->first + t, h * each + j);
            };
            heads_of([&](int64_t q, int64_t token, int64_t head) {
                for (int64_t j = 0; j < d; j += LANES)
                    store(&query[q * d + j], load(from + token * width + head * d + j) * scale);
            });
            for (int64_t p = item.piece; p < item.pieces; ++p) {
                const Piece& piece = pieces[p];
                const T* at = reinterpret_cast<const T*>(piece.address) + layer * piece.layer + h * piece.head;
                std::fill(sees.begin(), sees.end(), piece.length);
                read_keys<T, D>(
                    queries, query.data(), reads.data(), found.data(), at, at + piece.values, piece.token,
                    piece.length, sees.data()
                );
            }
            int64_t q = 0;
            for (int64_t p = item.part; p < item.parts; ++p) {
                const Row& row = *parts[p].row;
                const int64_t mine = (parts[p].to - parts[p].from) * each;
                for (int64_t j = 0; j < mine; ++j) sees[q + j] = row.old + parts[p].from + j / each + 1;
                const int64_t place = (row.tail + h * row.capacity) * d;
                read_keys<T, D>(
                    mine, &query[q * d], &reads[q], &found[q * d], keys + place, values + place, d,
                    row.old + parts[p].to, &sees[q]
                );
                q += mine;
            }
            heads_of([&](int64_t q, int64_t token, int64_t head) {
                const Floats share = all(1 / reads[q].mass);
                for (int64_t j = 0; j < d; j += LANES)
                    store(to + (token * heads_ + head) * d + j, load(&found[q * d + j]) * share);
            });
        };
        const int64_t n = static_cast<int64_t>(items.size());
        for_all(n * kv_heads_, meetings * each * d / n, [&](int64_t i) { one(items[i / kv_heads_], i % kv_heads_); });
    }

    // silu(gate) * up of [N, gate and up].
    template <typename T>
    static Tensor gated(const Tensor& both) {
        const int64_t n = both.size(0), width = both.size(1) / 2;
        const Tensor y = at::empty({n, width}, both.options());
        const T* from = data<T>(both);
        T* to = data<T>(y);
        for_all(n, 4 * width, [&](int64_t i) {
            const T *gate = from + 2 * i * width, *up = gate + width;
            for (int64_t j = 0; j < width; j += LANES) {
                const Floats x = load(gate + j);
                const Floats silu = rounded<T>(x / (all(1) + exponential(-x)));
                store(to + i * width + j, silu * load(up + j));
            }
        });
        return y;
    }
};

}  // namespace metagen
