// The next token of each row, where a temperature, top_k, top_p and min_p alone shape what is drawn: `sampling.draw` in a
// few passes over its logits.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "lanes.h"
#include "threads.h"

namespace metagen {

// Tokens whose weights are summed in float32, before sums go on in float64.
constexpr int64_t BLOCK = 256;

// By how much the sums of blocks and those of tokens may differ, as a share.
constexpr double ROUNDING = 1e-7;

// What was drawn in a row, in numbers: the token, its log-probability, whether it is near an edge, whether it is none.
constexpr int64_t COLUMNS = 4;

// How much longer a draw takes than one pass over the logits of its row.
constexpr int64_t PASSES = 4;

// Intervals of log-probabilities that top_p sums, before it looks at the tokens of one.
constexpr int64_t BINS = 2048;

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// What cuts off tokens, in this order: all but the k best and those that tie with the k-th; of the least probable those
// that have at most a share `drop` of all; those with less than a share min_p of the best. 0 cuts nothing.
struct Cuts {
    double top_k = 0, drop = 0, min_p = 0;
};

// What logits become: e^((z - best) * by) from the logit `least` up. Of equals to `least` the tokens to `last` stay.
struct Shape {
    float by = 1, least = LOWEST;
    int64_t last = std::numeric_limits<std::int32_t>::max();
};

class Draw {
  public:
    // near: how close to the edge of its interval a draw may have been decided by rounding. out: how far below the best
    // logit a token is left out, whatever the temperature.
    Draw(const float* logits, int64_t vocab, float near, float out)
        : z_(logits), vocab_(vocab), near_(near), out_(out), sums_((vocab + BLOCK - 1) / BLOCK) {}

    void row(double u, double temperature, const Cuts& cuts, double* found) {
        find_best();
        const bool greedy = temperature == 0;
        const double mass = weigh({});
        int64_t token = first_;
        bool edge = best_ - second_ < near_;
        if (!greedy) {
            Shape shape = shaped(temperature);
            if (!std::isnan(mass)) {
                keep_best(static_cast<int64_t>(cuts.top_k), shape);
                if (cuts.drop > 0) cut_tail(cuts.drop, shape);
                if (cuts.min_p > 0) raise(static_cast<float>(best_ + std::log(cuts.min_p) * temperature), shape);
            }
            const bool as_it_is = shape.by == 1 && shape.least == LOWEST;  // the sums of the blocks are there
            edge = pick(u, as_it_is ? mass : weigh(shape), shape, token);
        }
        found[0] = static_cast<double>(token);
        found[1] = static_cast<double>(z_[token] - best_) - std::log(mass);
        found[2] = edge;
        found[3] = std::isnan(mass) || std::isnan(found[1]);
    }

    // The probabilities [vocab] that a temperature makes of the logits; whether they are a distribution.
    bool shares(double temperature, float* to) {
        find_best();
        mass_ = weigh({});
        if (std::isnan(mass_)) {
            std::fill(to, to + vocab_, std::numeric_limits<float>::quiet_NaN());
            return false;
        }
        if (temperature == 0) {
            std::fill(to, to + vocab_, 0.0f);
            to[first_] = 1;
            return true;
        }
        const Shape shape = shaped(temperature);
        const Floats scale = all(static_cast<float>(1 / (temperature == 1 ? mass_ : weigh(shape))));
        for (int64_t i = 0; i < vocab_; i += LANES) {
            float kept[LANES];
            store(kept, weights(i, shape) * scale);
            std::copy(kept, kept + std::min(LANES, vocab_ - i), to + i);
        }
        return true;
    }

    // Behind `shares`: of a token under the raw logits; whether the two best logits are nearly equal.
    double logprob(int64_t token) const { return static_cast<double>(z_[token] - best_) - std::log(mass_); }
    bool tied() const { return best_ - second_ < near_; }

  private:
    const float* z_;
    double mass_ = 0;
    int64_t vocab_, first_ = 0;
    float near_, out_, best_ = 0, second_ = 0;
    std::vector<double> sums_;

    Floats lanes(int64_t i, float rest) const {
        if (i + LANES <= vocab_) return load(z_ + i);
        float kept[LANES];
        for (int64_t j = 0; j < LANES; ++j) kept[j] = i + j < vocab_ ? z_[i + j] : rest;
        return load(kept);
    }

    // The largest logit, the first token that has it, and the largest of the others.
    void find_best() {
        const float least = -std::numeric_limits<float>::infinity();
        Floats first = all(least), second = all(least);
        for (int64_t i = 0; i < vocab_; i += LANES) {
            const Floats x = lanes(i, least);
            const Floats lower = x > first ? first : x;
            second = lower > second ? lower : second;
            first = x > first ? x : first;
        }
        float firsts[LANES], seconds[LANES];
        store(firsts, first);
        store(seconds, second);
        const int64_t lane = std::max_element(firsts, firsts + LANES) - firsts;
        best_ = firsts[lane];
        second_ = *std::max_element(seconds, seconds + LANES);
        for (int64_t j = 0; j < LANES; ++j)
            if (j != lane) second_ = std::max(second_, firsts[j]);
        if (vocab_ == 1) second_ = best_;
        first_ = std::find(z_, z_ + vocab_, best_) - z_;
        first_ = first_ == vocab_ ? 0 : first_;
    }

    Shape shaped(double temperature) const {
        return {static_cast<float>(1 / temperature), temperature == 1 ? LOWEST : best_ - out_};
    }

    Floats weights(int64_t i, const Shape& shape) const {
        const Floats x = lanes(i, LOWEST);
        const Floats weight = exponential((x - all(best_)) * all(shape.by));
        Whole out = x < all(shape.least);
        if (shape.last < vocab_) {
            const Whole number = Whole{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + static_cast<std::int32_t>(i);
            out |= (x == all(shape.least)) & (number > static_cast<std::int32_t>(shape.last));
        }
        return out ? Floats{} : weight;
    }

    // The sum of what the logits become, and the sums of the blocks.
    double weigh(const Shape& shape) {
        double total = 0;
        for (std::size_t b = 0; b < sums_.size(); ++b) {
            Floats part = {};
            const int64_t from = static_cast<int64_t>(b) * BLOCK;
            for (int64_t i = from; i < std::min(vocab_, from + BLOCK); i += LANES) part += weights(i, shape);
            sums_[b] = sum(part);
            total += sums_[b];
        }
        return total;
    }

    static void raise(float least, Shape& shape) {
        if (least > shape.least) shape = {shape.by, least};
    }

    void keep_best(int64_t k, Shape& shape) const {
        if (k <= 0 || k >= vocab_) return;
        std::vector<float> best(k, LOWEST);  // a heap: its front is the least of them
        for (int64_t i = 0; i < vocab_; i += LANES) {
            const Floats x = lanes(i, LOWEST);
            if (!any(x > all(best.front()))) continue;
            float each[LANES];
            store(each, x);
            for (const float z : each) {
                if (!(z > best.front())) continue;
                std::pop_heap(best.begin(), best.end(), std::greater<>());
                best.back() = z;
                std::push_heap(best.begin(), best.end(), std::greater<>());
            }
        }
        raise(best.front(), shape);
    }

    // Intervals by how far logits are below the best: 0 holds the best, BINS all that are too deep to be kept.
    Whole bins(int64_t i, const Shape& shape, float per) const {
        const Floats depth = ((all(best_) - lanes(i, LOWEST)) * all(shape.by)) * all(per);
        const Floats deepest = all(static_cast<float>(BINS));
        return __builtin_convertvector(depth < deepest ? depth : deepest, Whole);
    }

    // From the least probable up, and among equals from the highest number down, while their sum is a share `drop`.
    void cut_tail(double drop, Shape& shape) const {
        if (vocab_ == 1) return;
        // All that is deeper than this together has less than that share.
        const float per = static_cast<float>(BINS / std::log(static_cast<double>(vocab_) / drop));
        std::vector<double> sums(BINS + 1);
        for (int64_t from = 0; from < vocab_; from += BLOCK) {
            Floats deep = {};
            for (int64_t i = from; i < std::min(vocab_, from + BLOCK); i += LANES) {
                const Floats weight = weights(i, shape);
                const Whole bin = bins(i, shape, per);
                if (!any(bin < static_cast<std::int32_t>(BINS))) {
                    deep += weight;
                    continue;
                }
                float each[LANES];
                store(each, weight);
                for (int64_t j = 0; j < LANES; ++j) sums[bin[j]] += each[j];
            }
            sums[BINS] += sum(deep);
        }
        double total = 0, below = 0;
        for (int64_t b = BINS; b >= 0; --b) total += sums[b];
        const double most = static_cast<float>(drop) * total;  // 1 - p has no more digits where torch computes
        int64_t edge = BINS;
        while (edge > 0 && below + sums[edge] <= most) below += sums[edge--];
        std::vector<std::tuple<float, int64_t, float>> tokens;  // logit, minus its number, weight
        for (int64_t i = 0; i < vocab_; i += LANES) {
            const Whole bin = bins(i, shape, per);
            if (!any(bin == static_cast<std::int32_t>(edge))) continue;
            float each[LANES];
            store(each, weights(i, shape));
            for (int64_t j = 0; j < LANES && i + j < vocab_; ++j)
                if (bin[j] == edge) tokens.emplace_back(z_[i + j], -(i + j), each[j]);
        }
        auto first = tokens.begin(), end = tokens.end();
        while (end - first > 1) {
            const auto middle = first + (end - first) / 2;
            std::nth_element(first, middle, end);
            double part = 0;
            for (auto one = first; one != middle; ++one) part += std::get<2>(*one);
            if (below + part > most) {
                end = middle;
            } else {
                below += part;
                first = middle;
            }
        }
        shape.least = std::get<0>(*first);
        shape.last = -std::get<1>(*first);
    }

    // By inverse CDF a token; whether u was near the edge of its interval.
    bool pick(double u, double total, const Shape& shape, int64_t& token) const {
        const double goal = std::min(u * total, std::nextafter(total, 0.0));
        double lower = 0;
        std::size_t block = 0;
        while (block + 1 < sums_.size() && !(lower + sums_[block] > goal)) lower += sums_[block++];
        double upper = lower, begins = lower;
        const int64_t from = static_cast<int64_t>(block) * BLOCK;
        bool placed = false;
        for (int64_t i = from; i < std::min(vocab_, from + BLOCK) && !placed; i += LANES) {
            float kept[LANES];
            store(kept, weights(i, shape));
            for (int64_t j = 0; j < LANES && i + j < vocab_; ++j) {
                if (!kept[j]) continue;
                token = i + j;
                begins = upper;
                upper += kept[j];
                if ((placed = upper > goal)) break;
            }
        }
        // The ends of the unit interval are the edges of no neighbour.
        const double reach = near_ * total;
        return (goal - begins < reach && begins > 0) || (upper - goal < reach && total - upper > ROUNDING * total);
    }
};

// logits: [R, V] in float32. u, temperatures: [R] in float64; a temperature of 0 is greedy. cuts: [R, 3] in float64, as
// in Cuts. [R, COLUMNS] in float64.
inline at::Tensor draw(
    const at::Tensor& logits, const at::Tensor& u, const at::Tensor& temperatures,
    const std::optional<at::Tensor>& cuts, double near, double out
) {
    const int64_t rows = logits.size(0), vocab = logits.size(1);
    const at::Tensor found = at::empty({rows, COLUMNS}, u.options());
    const float* z = logits.data_ptr<float>();
    const double *us = u.data_ptr<double>(), *ts = temperatures.data_ptr<double>();
    const double* cut = cuts ? cuts->data_ptr<double>() : nullptr;
    double* to = found.data_ptr<double>();
    for_all(rows, PASSES * vocab, [&](int64_t i) {
        const Cuts own = cut ? Cuts{cut[3 * i], cut[3 * i + 1], cut[3 * i + 2]} : Cuts{};
        Draw one(z + i * vocab, vocab, static_cast<float>(near), static_cast<float>(out));
        one.row(us[i], ts[i], own, to + i * COLUMNS);
    });
    return found;
}

}  // namespace metagen
