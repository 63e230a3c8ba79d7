"""Laws such as 'changes nothing', 'under a cap' and 'after a deadline', each with a fault that its test must tell."""

from __future__ import annotations

from typing import NamedTuple


class Named(NamedTuple):
    """A law, the module that keeps it, a change that breaks it, and the test that says so."""

    law: str
    path: str
    before: str
    after: str
    test: str


NAMED = (
    Named(
        "a text under a budget's cap is the beginning of the text without",
        "metagen/generators/torch/decode.py",
        "self._rows.generation(row).request.params.max_tokens - int(self._rows.position[row])",
        "int(self._rows.limit[row] - self._rows.length[row])",
        "tests/generators/torch/test_grammar.py::test_a_budget_cuts_what_closes_and_shapes_nothing",
    ),
    Named(
        "after a deadline somebody has paid for the prompt",
        "metagen/generators/heard.py",
        "pays = first if self._scope.left().seconds == 0 else 0",
        "pays = 0",
        "tests/test_durable.py::test_after_a_deadline_or_a_cancellation_the_prefix_is_paid_for_once",
    ),
    Named(
        "after a cancellation the first sample pays for the prompt when it is asked for again",
        "metagen/generators/heard.py",
        "pays = first if self._scope.left().seconds == 0 else 0",
        "pays = first",
        "tests/test_durable.py::test_after_a_deadline_or_a_cancellation_the_prefix_is_paid_for_once",
    ),
    Named(
        "a row that just meets a cap answers under it",
        "metagen/call.py",
        "generated <= (grant.cap",
        "generated < (grant.cap",
        "tests/test_scope.py::test_who_is_granted_a_cap_takes_what_another_has_meanwhile_made_within_it",
    ),
    Named(
        "a resample without a crossing lies on the side of the end that is unsure",
        "metagen/runs/questions/crossings.py",
        "* rising < 0 else 0.0",
        "* rising > 0 else 0.0",
        "tests/runs/questions/test_frontier.py::test_a_crossing_that_a_resample_lacks_lies_on_the_side_of_the_unsure_end",
    ),
    Named(
        "of equal costs the best comes first",
        "metagen/runs/curves/frontier.py",
        "np.lexsort((-accuracy, costs)",
        "np.lexsort((accuracy, costs)",
        "tests/runs/questions/test_frontier.py::test_of_equal_costs_the_best_alone_is_on_the_frontier_and_in_its_resamples",
    ),
    Named(
        "who rests in one round plays in the next",
        "metagen/strategies/knockout.py",
        "winners + bye",
        "bye + winners",
        "tests/strategies/test_knockout.py::test_of_an_odd_number_the_first_rests_and_plays_in_the_next_round",
    ),
    Named(
        "blocks read as one, whatever their bytes",
        "metagen/generators/continuation.py",
        "            size *= 2\n",
        "            break\n",
        "tests/generators/test_continuation.py::test_blocks_read_as_one_whatever_their_bytes",
    ),
    Named(
        "after a deadline records answer",
        "metagen/call.py",
        "if first is None else reserve())",
        "if True else reserve())",
        "tests/test_scope.py::test_after_the_deadline_records_answer_and_nothing_is_begun",
    ),
    Named(
        "a timeout of the call itself is not the deadline",
        "metagen/call.py",
        "if not clock.expired():",
        "if False:",
        "tests/test_scope.py::test_a_timeout_of_the_call_itself_is_not_the_deadline",
    ),
    Named(
        "a deadline after all had ended exhausts nothing",
        "metagen/call.py",
        "if late is not None and self.pending:",
        "if late is not None:",
        "tests/test_scope.py::test_a_deadline_after_all_had_ended_exhausts_nothing",
    ),
    Named(
        "what had ended at a deadline is served before the refusal",
        "metagen/call.py",
        "key=lambda i: not self._complete(i))",
        "key=lambda i: self._complete(i))",
        "tests/test_scope.py::test_what_had_ended_at_a_deadline_is_returned_and_replayed_and_never_paid_for_again",
    ),
    Named(
        "a deadline ends waiting for others",
        "metagen/call.py",
        "timeout=self._seconds())",
        "timeout=None)",
        "tests/test_scope.py::test_a_deadline_ends_waiting_for_room_and_for_others_as_well",
    ),
    Named(
        "a replay after a deadline takes the same branch",
        "metagen/call.py",
        'for dimension in (*DIMENSIONS, "seconds"):',
        "for dimension in DIMENSIONS:",
        "tests/test_scope.py::test_a_deadline_cancels_and_a_replay_takes_the_same_branch_and_a_longer_one_runs_again",
    ),
    Named(
        "what had ended when a call was cut off is paid for",
        "metagen/call.py",
        "begun.grant if begun is not None else grant, used or ZERO)",
        "begun.grant if begun is not None else grant, ZERO)",
        "tests/test_scope.py::test_what_had_ended_is_paid_for_also_when_the_call_fails_or_is_cancelled",
    ),
    Named(
        "the order of two candidates changes nothing for a judge",
        "metagen/verifiers/generative/pairwise.py",
        "else _other(known[key])",
        "else known[key]",
        "tests/verifiers/generative/test_pairwise.py::test_either_order_of_a_pair_changes_nothing_but_the_side",
    ),
    Named(
        "under a deadline alone nobody waits for another",
        "metagen/budget.py",
        "(account for account in self.account.path if account.budget.divisible)",
        "iter(self.account.path)",
        "tests/test_scope.py::test_under_a_deadline_alone_nobody_waits_for_another",
    ),
    Named(
        "permuting the candidates changes nothing",
        "metagen/strategies/aggregate.py",
        "max(tied, key=lambda member: digest(salt, member))",
        "next(iter(tied))",
        "tests/strategies/test_aggregate.py::test_permuting_the_candidates_changes_nothing",
    ),
    Named(
        "temperature changes nothing of what top_n_sigma cuts",
        "metagen/generators/torch/adapters.py",
        'params.column("top_n_sigma", z) * sigma)',
        'params.column("top_n_sigma", z))',
        "tests/generators/torch/test_repetition.py::test_temperature_changes_nothing_of_what_top_n_sigma_cuts",
    ),
    Named(
        "a memory that is full changes nothing but the time",
        "metagen/verifiers/read_once.py",
        "len(self._values) - self._limit)",
        "len(self._values) - self._limit + 1)",
        "tests/verifiers/test_reward.py::test_a_memory_that_is_full_forgets_what_is_oldest_and_changes_nothing",
    ),
)
