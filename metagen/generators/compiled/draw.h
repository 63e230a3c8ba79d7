// The next token of each row, where nothing but a temperature shapes what is drawn: `sampling.draw` in one pass.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lanes.h"

namespace metagen {

// Tokens whose weights are summed in float32, before sums go on in float64.
constexpr int64_t BLOCK = 256;

// By how much the sums of blocks and those of tokens may differ, as a share.
constexpr double ROUNDING = 1e-7;

// What was drawn in a row, in numbers: the token, its log-probability, whether it is near an edge, whether it is none.
constexpr int64_t COLUMNS = 4;

class Draw {
  public:
    // near: how close to the edge of its interval a draw may have been decided by rounding. out: how far below the best
    // logit a token is left out, whatever the temperature.
    Draw(const float* logits, int64_t vocab, float near, float out)
        : z_(logits), vocab_(vocab), near_(near), out_(out), sums_((vocab + BLOCK - 1) / BLOCK) {}

    void row(double u, double temperature, double* found) {
        find_best();
        const bool greedy = temperature == 0;
        const double mass = weigh(1, -std::numeric_limits<float>::infinity());
        const double total = greedy || temperature == 1 ? mass : weigh(1 / temperature, best_ - out_);
        int64_t token = first_;
        bool edge = best_ - second_ < near_;
        if (!greedy) edge = pick(u, total, temperature, token);
        found[0] = static_cast<double>(token);
        found[1] = static_cast<double>(z_[token] - best_) - std::log(mass);
        found[2] = edge;
        found[3] = std::isnan(mass) || std::isnan(found[1]);
    }

    // The probabilities [vocab] that a temperature makes of the logits; whether they are a distribution.
    bool shares(double temperature, float* to) {
        find_best();
        mass_ = weigh(1, -std::numeric_limits<float>::infinity());
        if (std::isnan(mass_)) {
            std::fill(to, to + vocab_, std::numeric_limits<float>::quiet_NaN());
            return false;
        }
        if (temperature == 0) {
            std::fill(to, to + vocab_, 0.0f);
            to[first_] = 1;
            return true;
        }
        const double by = 1 / temperature;
        const float least = temperature == 1 ? -std::numeric_limits<float>::infinity() : best_ - out_;
        const Floats scale = all(static_cast<float>(1 / (temperature == 1 ? mass_ : weigh(by, least))));
        for (int64_t i = 0; i < vocab_; i += LANES) {
            float kept[LANES];
            store(kept, weights(i, static_cast<float>(by), least) * scale);
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

    Floats weights(int64_t i, float by, float least) const {
        const Floats x = lanes(i, -std::numeric_limits<float>::infinity());
        const Floats weight = exponential((x - all(best_)) * all(by));
        return x < all(least) ? Floats{} : weight;
    }

    // The sum of e^((z - best) * by) over the logits that are at least `least`, and the sums of the blocks.
    double weigh(double by, float least) {
        double total = 0;
        for (std::size_t b = 0; b < sums_.size(); ++b) {
            Floats part = {};
            const int64_t from = static_cast<int64_t>(b) * BLOCK;
            for (int64_t i = from; i < std::min(vocab_, from + BLOCK); i += LANES)
                part += weights(i, static_cast<float>(by), least);
            sums_[b] = sum(part);
            total += sums_[b];
        }
        return total;
    }

    // By inverse CDF a token; whether u was near the edge of its interval.
    bool pick(double u, double total, double temperature, int64_t& token) const {
        const double goal = std::min(u * total, std::nextafter(total, 0.0));
        double lower = 0;
        std::size_t block = 0;
        while (block + 1 < sums_.size() && !(lower + sums_[block] > goal)) lower += sums_[block++];
        const float by = static_cast<float>(1 / temperature);
        const float least = temperature == 1 ? -std::numeric_limits<float>::infinity() : best_ - out_;
        double upper = lower, begins = lower;
        const int64_t from = static_cast<int64_t>(block) * BLOCK;
        bool placed = false;
        for (int64_t i = from; i < std::min(vocab_, from + BLOCK) && !placed; i += LANES) {
            float kept[LANES];
            store(kept, weights(i, by, least));
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

// logits: [R, V] in float32. u, temperatures: [R] in float64; a temperature of 0 is greedy. [R, COLUMNS] in float64.
inline at::Tensor draw(
    const at::Tensor& logits, const at::Tensor& u, const at::Tensor& temperatures, double near, double out
) {
    const int64_t rows = logits.size(0), vocab = logits.size(1);
    const at::Tensor found = at::empty({rows, COLUMNS}, u.options());
    const float* z = logits.data_ptr<float>();
    const double *us = u.data_ptr<double>(), *ts = temperatures.data_ptr<double>();
    double* to = found.data_ptr<double>();
    at::parallel_for(0, rows, std::max<int64_t>(1, 8192 / vocab), [&](int64_t from, int64_t until) {
        for (int64_t i = from; i < until; ++i)
            Draw(z + i * vocab, vocab, static_cast<float>(near), static_cast<float>(out)).row(us[i], ts[i], to + i * COLUMNS);
    });
    return found;
}

}  // namespace metagen
