// Speculative sampling, where nothing but temperatures shapes what is drawn: tokens that a small model drafts, and how
// many of them the target keeps. The formulas are those of `speculation/verify.py`.
#pragma once

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "blocks.h"
#include "draw.h"
#include "randomness.h"

namespace metagen {

inline void expect(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// Whether a tensor is a table of this shape, one row behind the other.
inline bool is_table(const Tensor& x, at::ScalarType type, std::initializer_list<int64_t> sizes) {
    return x.scalar_type() == type && x.is_contiguous() && x.sizes() == at::IntArrayRef(sizes);
}

// How much longer a row of logits takes than one pass over its numbers.
constexpr int64_t WEIGHED = 16;

inline Tensor multiply(const Matrix& by, const Tensor& x) {
    return x.scalar_type() == at::kFloat ? multiply<float>(by, x, {}) : multiply<BFloat16>(by, x, {});
}

// A token by inverse CDF at u, of weights [vocab]; whether u is near the edge of its interval.
template <typename Weight>
std::pair<int64_t, bool> pick(const Weight* weights, int64_t vocab, double u, double near) {
    double total = 0, begins = 0, upper = 0;
    for (int64_t i = 0; i < vocab; ++i) total += weights[i];
    const double goal = std::min(u * total, std::nextafter(total, 0.0));
    int64_t token = 0;
    for (int64_t i = 0; i < vocab && !(upper > goal); ++i) {
        if (!weights[i]) continue;
        token = i;
        begins = upper;
        upper += weights[i];
    }
    const double reach = near * total;
    return {token, (goal - begins < reach && begins > 0) || (upper - goal < reach && upper < total)};
}

// Let a small model draft up to wanted [R] tokens of each row, up to one that ends it.
//
// tokens [N]: what the rows run first, of which counts [R]; rows: [R, 6], as in Row, with room for what follows.
// seeds, positions, temperatures: [R]; flags: [R, vocab] by token, of which `ends` end a row; near, out: as in Draw.
// Returns the tokens [R, G]; how many are meant, how many are near an edge, and whether the logits were no
// distribution, [R, 3]; and the distributions that they were drawn from, [R, G, vocab].
inline std::tuple<Tensor, Tensor, Tensor> draft(
    const Blocks& blocks, const Tensor& embedding, const Matrix& head, const Tensor& kv, const Tensor& rows,
    const Tensor& order, const Tensor& groups, const Tensor& pieces, const Tensor& tokens, const Tensor& wanted,
    const Tensor& seeds, const Tensor& positions, const Tensor& temperatures, const Tensor& flags, double near,
    double out, int64_t ends
) {
    const int64_t n = flags.size(0), vocab = flags.size(1), most = wanted.max().item<int64_t>();
    expect(is_table(rows, at::kLong, {n, 6}) && is_table(wanted, at::kLong, {n}), "draft: rows and wanted");
    expect(is_table(seeds, at::kLong, {n}) && is_table(positions, at::kLong, {n}), "draft: seeds and positions");
    expect(is_table(temperatures, at::kDouble, {n}), "draft: temperatures");
    expect(is_table(flags, at::kByte, {n, vocab}), "draft: flags");
    const Tensor table = rows.clone(), drafted = at::zeros({n, most}, wanted.options());
    const Tensor found = at::zeros({n, 3}, wanted.options());
    const Tensor q = at::zeros({n, most, vocab}, temperatures.options().dtype(at::kFloat));
    Row* row = reinterpret_cast<Row*>(table.data_ptr<int64_t>());
    int64_t *token = drafted.data_ptr<int64_t>(), *told = found.data_ptr<int64_t>();
    const int64_t* most_of = wanted.data_ptr<int64_t>();
    const uint8_t* flag = flags.data_ptr<uint8_t>();
    const int64_t *seed = seeds.data_ptr<int64_t>(), *position = positions.data_ptr<int64_t>();
    const double* temperature = temperatures.data_ptr<double>();
    float* shares = q.data_ptr<float>();
    int64_t next = 0;
    for (int64_t i = 0; i < n; ++i) {
        told[3 * i] = most_of[i];
        expect(row[i].first == next, "draft: order");
        next += row[i].count;
        expect(0 < most_of[i] && most_of[i] <= most, "draft: wanted");
        expect(row[i].count > 0 && row[i].old + row[i].count + most_of[i] - 1 <= row[i].capacity, "draft: room");
        expect(row[i].position + row[i].count + most_of[i] - 1 <= blocks.context(), "draft: context");
    }
    expect(is_table(tokens, at::kLong, {next}), "draft: tokens");
    Tensor newest = tokens;
    const Tensor last = at::empty({n}, wanted.options());
    std::vector<int64_t> line(n);
    for (int64_t place = 0; newest.size(0); ++place) {
        const Tensor x = blocks.run(embedding.index_select(0, newest), kv, table, order, groups, pieces, {});
        int64_t live = 0;
        for (int64_t i = 0; i < n; ++i) {
            if (!row[i].count) continue;
            line[i] = live;
            last.data_ptr<int64_t>()[live++] = row[i].first + row[i].count - 1;
        }
        const Tensor wants = x.size(0) == live ? x : x.index_select(0, last.narrow(0, 0, live));
        const Tensor logits = multiply(head, wants).to(at::kFloat).contiguous();
        expect(logits.size(1) >= vocab, "draft: the head gives too few logits");
        const float* z = logits.data_ptr<float>();
        for_all(n, WEIGHED * vocab, [&](int64_t i) {
            if (!row[i].count) return;
            float* share = shares + (i * most + place) * vocab;
            Draw draw(z + line[i] * logits.size(1), vocab, static_cast<float>(near), static_cast<float>(out));
            if (draw.shares(temperature[i], share)) {
                const double u = number(seed[i], position[i], place + 1, Purpose::SAMPLE);
                const auto [drawn, edge] = pick(share, vocab, u, near);
                token[i * most + place] = drawn;
                told[3 * i + 1] += edge;
                if (flag[i * vocab + drawn] & ends) told[3 * i] = place + 1;
            } else {
                told[3 * i] = place;
                told[3 * i + 2] = 1;
            }
        });
        next = 0;
        for (int64_t i = 0; i < n; ++i) {
            Row& of = row[i];
            of.position += of.count;
            of.old += of.count;
            of.count = told[3 * i] > place + 1;
            of.first = next;
            next += of.count;
        }
        newest = at::empty({next}, wanted.options());
        for (int64_t i = 0; i < n; ++i)
            if (row[i].count) newest.data_ptr<int64_t>()[row[i].first] = token[i * most + place];
    }
    return {drafted, found, q};
}

// What is kept of the tokens that one row has drafted.
class Verdict {
  public:
    // p: [G + 1, vocab], q: [G, vocab]; q null: the draft was sure of its tokens.
    Verdict(const float* p, const float* q, const int64_t* tokens, int64_t count, int64_t vocab, bool by_block)
        : p_(p), q_(q), tokens_(tokens), count_(count), vocab_(vocab), by_block_(by_block), chances_(count),
          reach_(count + 1, 1.0) {
        for (int64_t i = 0; i < count; ++i) {
            const double theirs = q ? at(q, i, tokens[i]) : 1.0;
            const double ratio = theirs > 0 ? at(p, i, tokens[i]) / theirs : 0.0;
            chances_[i] = std::min(ratio, 1.0);
            if (by_block) reach_[i + 1] = std::min(reach_[i] * ratio, 1.0);
        }
        if (!by_block) return;
        for (int64_t i = 1; i < count; ++i) chances_[i - 1] = test(i);
        if (count) chances_[count - 1] = reach_[count];
    }

    // How many are kept, by random numbers [G].
    int64_t kept(const double* u) const {
        int64_t found = 0;
        for (int64_t i = 0; i < count_; ++i) {
            if (u[i] < chances_[i])
                found = i + 1;
            else if (!by_block_)
                break;
        }
        return found;
    }

    bool near(const double* u, int64_t tested, double near) const {
        for (int64_t i = 0; i < (by_block_ ? count_ : tested); ++i)
            if (std::abs(u[i] - chances_[i]) < near && chances_[i] > 0 && chances_[i] < 1) return true;
        return false;
    }

    // The weights of the token behind the first `kept`; their sum.
    double rest(int64_t kept, std::vector<double>& left) const {
        double total = 0;
        for (int64_t x = 0; x < vocab_ && kept < count_; ++x) {
            left[x] = over(kept, x, reach_[kept]);
            total += left[x];
        }
        if (kept < count_ && total > 0) return total;
        // Where nothing is left, p and q differ by rounding only.
        total = 0;
        for (int64_t x = 0; x < vocab_; ++x) total += left[x] = at(p_, kept, x);
        return total;
    }

    double overlap(int64_t tested) const {
        double total = 0;
        for (int64_t i = 0; i < tested; ++i)
            for (int64_t x = 0; x < vocab_; ++x) total += std::min(at(p_, i, x), theirs(i, x));
        return total;
    }

  private:
    const float *p_, *q_;
    const int64_t* tokens_;
    int64_t count_, vocab_;
    bool by_block_;
    std::vector<double> chances_, reach_;

    double at(const float* of, int64_t i, int64_t x) const { return of[i * vocab_ + x]; }
    double theirs(int64_t i, int64_t x) const { return q_ ? at(q_, i, x) : tokens_[i] == x; }
    double over(int64_t i, int64_t x, double reach) const { return std::max(reach * at(p_, i, x) - theirs(i, x), 0.0); }

    double test(int64_t i) const {
        double left = 0;
        for (int64_t x = 0; x < vocab_; ++x) left += over(i, x, reach_[i]);
        const double total = left + 1 - reach_[i];
        return total > 0 ? left / total : 1.0;
    }
};

// What is told of a row: tokens kept; decisions near an edge; whether logits were no distribution, and whether no token
// is left; tokens tested; the overlap of p and q at these.
constexpr int64_t TOLD = 6;

// What rows keep of the tokens [R, G] that were drafted, of which counts [R], and the tokens that come behind.
//
// logits: [N, V]; those that follow the tokens before the drafted ones of row r are logits[first[r]]. q: as `draft`
// leaves it; none: the draft was sure. Returns tokens [R, G + 1], their log-probabilities in the raw model
// [R, G + 1], and TOLD [R, 6].
inline std::tuple<Tensor, Tensor, Tensor> judge(
    const Tensor& logits, const Tensor& first, const Tensor& tokens, const Tensor& counts, const Optional& q,
    const Tensor& seeds, const Tensor& positions, const Tensor& temperatures, bool by_block, double near, double out
) {
    const int64_t n = tokens.size(0), most = tokens.size(1), vocab = logits.size(1);
    expect(logits.scalar_type() == at::kFloat && logits.stride(1) == 1, "judge: logits");
    expect(is_table(first, at::kLong, {n}) && is_table(counts, at::kLong, {n}), "judge: first and counts");
    expect(is_table(tokens, at::kLong, {n, most}), "judge: tokens");
    expect(!q || is_table(*q, at::kFloat, {n, most, vocab}), "judge: q");
    expect(is_table(seeds, at::kLong, {n}) && is_table(positions, at::kLong, {n}), "judge: seeds and positions");
    expect(is_table(temperatures, at::kDouble, {n}), "judge: temperatures");
    const int64_t *begin = first.data_ptr<int64_t>(), *count = counts.data_ptr<int64_t>();
    const int64_t* drafted = tokens.data_ptr<int64_t>();
    for (int64_t i = 0; i < n; ++i) {
        expect(0 <= count[i] && count[i] <= most, "judge: counts");
        expect(0 <= begin[i] && begin[i] + count[i] < logits.size(0), "judge: first");
        for (int64_t j = 0; j < count[i]; ++j)
            expect(0 <= drafted[i * most + j] && drafted[i * most + j] < vocab, "judge: tokens");
    }
    const Tensor chosen = at::zeros({n, most + 1}, tokens.options());
    const Tensor logprobs = at::zeros({n, most + 1}, temperatures.options());
    const Tensor told = at::zeros({n, TOLD}, temperatures.options());
    const float* z = logits.data_ptr<float>();
    const float* qs = q ? q->data_ptr<float>() : nullptr;
    const int64_t *seed = seeds.data_ptr<int64_t>(), *position = positions.data_ptr<int64_t>();
    const double* temperature = temperatures.data_ptr<double>();
    int64_t* token = chosen.data_ptr<int64_t>();
    double *logprob = logprobs.data_ptr<double>(), *tell = told.data_ptr<double>();
    for_all(n, WEIGHED * (most + 1) * vocab, [&](int64_t i) {
        std::vector<float> p((count[i] + 1) * vocab);
        std::vector<Draw> draws;
        for (int64_t j = 0; j <= count[i]; ++j) {
            const float* at = z + (begin[i] + j) * logits.stride(0);
            draws.emplace_back(at, vocab, static_cast<float>(near), static_cast<float>(out));
            draws[j].shares(temperature[i], &p[j * vocab]);
        }
        const float* own = qs ? qs + i * most * vocab : nullptr;
        const Verdict verdict(p.data(), own, drafted + i * most, count[i], vocab, by_block);
        std::vector<double> u(count[i]);
        for (int64_t j = 0; j < count[i]; ++j) u[j] = number(seed[i], position[i], j + 1, Purpose::ACCEPT);
        const int64_t kept = verdict.kept(u.data()), tested = std::min(kept + 1, count[i]);
        std::vector<double> left(vocab);
        const double total = verdict.rest(kept, left);
        const double behind = number(seed[i], position[i], kept + 1, Purpose::RESIDUAL);
        const auto [last, edge] = pick(left.data(), vocab, behind, near);
        std::copy(drafted + i * most, drafted + i * most + kept, token + i * (most + 1));
        token[i * (most + 1) + kept] = last;
        bool bad = false;
        int64_t ties = 0;
        for (int64_t j = 0; j <= kept; ++j) {
            double& found = logprob[i * (most + 1) + j];
            found = draws[j].logprob(token[i * (most + 1) + j]);
            bad |= std::isnan(found);
            ties += draws[j].tied();
        }
        const double overlap = verdict.overlap(tested);
        const bool greedy = temperature[i] == 0;
        const double numbers[TOLD] = {
            static_cast<double>(kept),
            static_cast<double>(greedy ? ties : verdict.near(u.data(), tested, near) + edge),
            static_cast<double>(bad),
            static_cast<double>(!bad && !(total > 0)),
            static_cast<double>(tested),
            std::isnan(overlap) ? 0.0 : overlap,
        };
        std::copy(numbers, numbers + TOLD, tell + i * TOLD);
    });
    return {chosen, logprobs, told};
}

}  // namespace metagen
