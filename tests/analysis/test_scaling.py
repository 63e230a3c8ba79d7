"""Fits: laws come back from their own points, and what they miss is measured where they were not fitted."""

import numpy as np
import pytest

from metagen.analysis.estimators import pass_at_k
from metagen.analysis.scaling import PARAMETERS, Fit, fit, predict, refits
from metagen.errors import InputError

KS = 2.0 ** np.arange(9)
COSTS = np.logspace(7, 10.5, 8)
TRUE = {
    "exponentiated power": (KS, {"a": -1.3, "b": -0.45}),
    "log-linear": (COSTS, {"intercept": -0.4, "slope": 0.05}),
    "power to a floor": (COSTS, {"floor": 0.12, "scale": 300.0, "exponent": 0.4}),
}


def points(law: str):
    x, parameters = TRUE[law]
    return x, predict(Fit(law, parameters, np.zeros(0), 0.0, ()), x)


@pytest.mark.parametrize("law", PARAMETERS)
class TestLaws:
    def test_it_comes_back_from_its_own_points(self, law) -> None:
        x, y = points(law)
        found = fit(law, x, y)
        for name, value in TRUE[law][1].items():
            assert found.parameters[name] == pytest.approx(value, rel=1e-3)
        np.testing.assert_allclose(found.held_out, 0.0, atol=1e-5)
        assert found.rmse < 1e-5 and found.extrapolation < 1e-5
        assert found.ks == tuple(x[:-2])

    def test_held_out_points_have_no_say_and_their_error_is_measured_less_predicted(self, law) -> None:
        x, y = points(law)
        bent = y.copy()
        bent[-2:] += [0.03, -0.02]
        straight, found = fit(law, x, y), fit(law, x, bent)
        assert found.parameters == straight.parameters
        np.testing.assert_allclose(found.held_out, [0.03, -0.02], atol=1e-5)
        assert found.extrapolation == pytest.approx(np.sqrt((0.03**2 + 0.02**2) / 2), abs=1e-5)

    def test_the_order_of_points_plays_no_part(self, law) -> None:
        x, y = points(law)
        order = np.random.default_rng(0).permutation(len(x))
        assert fit(law, x[order], y[order]).parameters == fit(law, x, y).parameters

    def test_weights_decide_between_points_that_disagree(self, law) -> None:
        x, y = points(law)
        y = y + np.random.default_rng(1).normal(0, 0.01, len(x))
        w = np.ones(len(x))
        w[2] = 1e6
        heavy, light = fit(law, x, y, weights=w, held_out=0), fit(law, x, y, held_out=0)
        at = slice(2, 3)
        assert abs(predict(heavy, x[at]) - y[at]) < abs(predict(light, x[at]) - y[at])
        # Only ratios count.
        scaled = fit(law, x, y, weights=7.0 * w, held_out=0)
        np.testing.assert_allclose(predict(scaled, x), predict(heavy, x), atol=1e-6)

    def test_too_few_points_and_constants_have_no_law(self, law) -> None:
        x, y = points(law)
        with pytest.raises(InputError, match="leave too few"):
            fit(law, x[: len(PARAMETERS[law]) + 1], y[: len(PARAMETERS[law]) + 1])
        with pytest.raises(InputError, match="a constant has no law"):
            fit(law, x, np.ones(len(x)))


@pytest.mark.parametrize(
    ("law", "x", "y", "way"),
    [
        ("power to a floor", COSTS, np.linspace(0.2, 0.5, 8), "fall"),
        ("exponentiated power", KS, np.linspace(0.5, 0.3, 9), "rise"),
    ],
)
def test_what_goes_the_other_way_has_no_law(law, x, y, way) -> None:
    with pytest.raises(InputError, match=f"no law: y does not {way} with x, from"):
        fit(law, x, y)
    fit(law, x, y[::-1])


def test_coverage_of_problems_with_beta_rates_is_nearly_such_a_law() -> None:
    """Rates from Beta(0.4, 2): mean coverage of 512 samples, extrapolated from 64 to 256, within two points."""
    rates = np.random.default_rng(0).beta(0.4, 2.0, size=2000)
    right = np.random.default_rng(1).binomial(512, rates)
    coverage = pass_at_k(512, right, KS[:, None].astype(int)).mean(axis=1)
    assert fit("exponentiated power", KS, coverage).extrapolation < 0.02


def test_a_law_is_not_the_wrong_law() -> None:
    """Accuracy that saturates is not linear in log cost: extrapolation shows it, the fit itself hides it."""
    x, error = points("power to a floor")
    found = fit("log-linear", x, 1.0 - error)
    assert found.extrapolation > 2 * found.rmse and (found.held_out < 0).all()


def test_refits_vary_as_problems_do() -> None:
    rows = np.clip(0.5 + 0.05 * np.log2(KS)[:, None] + np.random.default_rng(0).normal(0, 0.2, 80), 0, 1)
    found = refits("log-linear", KS, rows)
    assert len(found) == 200
    intercepts = [f.parameters["intercept"] for f in found]
    expected = rows[0].std(ddof=1) / np.sqrt(80)
    assert np.std(intercepts) == pytest.approx(expected, rel=0.3)
    whole = fit("log-linear", KS, rows.mean(axis=1)).parameters["intercept"]
    assert np.quantile(intercepts, 0.025) < whole < np.quantile(intercepts, 0.975)
    assert [f.parameters for f in refits("log-linear", KS, rows)] == [f.parameters for f in found]


def test_refits_without_a_law_are_left_out() -> None:
    rows = np.zeros((5, 3))
    rows[1:, 0] = 1.0  # a resample without the first problem is constant
    assert 0 < len(refits("log-linear", KS[:5], rows)) < 200


def test_faults() -> None:
    with pytest.raises(InputError, match="expected one of 'exponentiated power'"):
        fit("power", KS, KS)  # type: ignore[arg-type]  # the fault itself
    with pytest.raises(InputError, match="x > 0"):
        fit("log-linear", KS - 1.0, KS)
    with pytest.raises(InputError, match="finite y"):
        fit("log-linear", KS, np.full(9, np.nan))
    with pytest.raises(InputError, match="one \\[points\\]"):
        fit("log-linear", KS, KS[:4])
