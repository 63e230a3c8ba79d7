"""Words beside a number: a unit is dropped, and nothing else is."""

import pytest

from metagen.verifiers.math.keys import verdict


def key(answer: str) -> str | None:
    return verdict(answer).key


SAME = [
    ["1500000", "1.5 million", "1,500,000", "1\\frac12 million", "\\$1.5\\text{ million}", "$1.5 million",
     "1.5 million dollars", "1500 thousand", "1.5\\text{ million people}", "15 hundred thousand", "1.5 Millionen"],
    ["24", "2 dozen", "2 dozen eggs", "24 eggs", "2\\text{ dozen}"],
    ["10 AM", "10 a.m.", "10:00 am", "\\text{10 AM}", "10\\text{ a.m.}", "10:00\\text{ AM}", "10am"],
    ["6:30 p.m.", "6:30 PM", "6:30pm", "06:30 pm"],
    ["12:30", "\\text{12:30}", "$12:30$"],
    ["2:3", "2/3", "4:6", "20 : 30", "\\frac23"],
    ["3 hours 20 minutes", "3 hours and 20 minutes", "3 hours, 20 minutes", "3 hrs 20 min", "3 h 20 min",
     "3\\text{ hours }20\\text{ minutes}", "3 \\text{ hours and } 20 \\text{ minutes}"],
    ["5 ft 3 in", "5 feet 3 inches", "5 feet, 3 inches", "5 ft. 3 in."],
    ["40° N", "40°N", "40^\\circ \\text{ N}", "40^\\circ\\text{N}", "40 degrees north", "40^\\circ\\text{ north}"],
    ["-5", "negative 5", "minus 5"],
    ["30", "30 min", "30 mins", "30 minutes", "30 sec", "30 degrees"],
    ["5", "5 (five)", "$5$ (five)"],
    ["500000", "5 lakh", "0.5 million", "500 thousand"],
    ["1 hour 30 minutes", "1 h 30 min", "1 hr 30 min", "1 hour and 30 minutes"],
    ["5 dollars and 20 cents", "5 dollars, 20 cents"],
    ["60", "60 miles per hour", "60 km/h", "60 square feet", "60\\text{ m}^2", "60 apples", "60 apples left over",
     "60 years old", "60 in total"],
    ["3000000", "3 mln", "3 Mio.", "3 milioni", "3\\text{ miljoen}", "3 milhões", "3 juta"],
    ["3000000000", "3 bn", "3\\text{ bn}", "3 Mrd", "3 miliardi", "3 bilhões"],
    ["3\\cdot 10^{18}", "3 quintillion"],
    ["36", "3 doz", "3 Dutzend", "3 docenas"],
    ["300000", "3 lac", "3 lakhs"],
    ["0.003", "3 permille", "3‰"],
    ["0.000003", "3 ppm"],
    ["5", "5°C", "5℃", "5 degrees C", "5 degrees Celsius", "5\\text{ degrees C}", "5^\\circ\\text{C}", "5.0°C"],
    ["-40", "-40°C", "-40°F", "-40^\\circ F", "-40^\\circ\\text{F}", "-40\\,^{\\circ}\\mathrm{F}", "-40.0°F", "-40℉",
     "-40\\text{ °F}", "-40 degrees F", "-40 degrees Fahrenheit", "-40\\text{ degrees Fahrenheit}",
     "x = -40°F", "F = -40°F", "negative 40 Fahrenheit", "-40\\text{ F}", "-\\frac{80}{2}°F"],
    ["300", "300 kelvin", "300 kelvins", "300°K", "300 degrees Kelvin"],
    ["300 K", "300\\text{ K}"],
    ["3 gross", "3\\text{ gross}", "3.0 gross", "3 (gross)", "3 gross of pencils"],
    ["3k", "3\\text{k}", "3\\text{ k}"],
]  # fmt: skip


@pytest.mark.parametrize("answers", SAME, ids=lambda answers: answers[0])
def test_one_quantity(answers: list[str]) -> None:
    keys = {answer: key(answer) for answer in answers}
    assert len(set(keys.values())) == 1 and None not in keys.values(), keys


DIFFERENT = [
    ["3", "3 million", "3 billion", "3 thousand", "3 hundred", "3 dozen", "3 trillion", "3k", "3M"],
    ["3.5", "$3.5 million", "$3.5 billion"],
    ["half a million", "half a billion", "1/2"],
    ["10", "10 AM", "10 PM", "10:30 AM"],
    ["6:30", "6:30 am", "6:30 pm", "1/5"],
    ["12:30", "2:5", "12:30 PM", "12:30 AM", "10:25"],
    ["3", "3 hours 20 minutes", "3 hours 30 minutes", "20 hours 3 minutes", "3 minutes 20 seconds", "\\{3,20\\}"],
    ["3\\text{ hours }20\\text{ minutes}", "3", "60"],
    ["5 ft 3 in", "5", "3 ft 5 in", "5 feet + 3 inches", "8"],
    ["3 apples and 5 oranges", "5 apples and 3 oranges", "8"],
    ["40° N", "40° S", "40° W", "40° E", "40"],
    ["40\\text{ degrees north}", "40\\text{ degrees south}", "40\\text{ degrees}"],
    ["5 miles north", "5 miles south", "5 miles"],
    ["5", "5 degrees below zero", "5 degrees above zero"],
    ["$5", "$5 loss", "a loss of $5"],
    ["20%", "20% increase", "20% decrease"],
    ["5%", "5 percentage points", "5"],
    ["5", "5 March", "5 April", "March 5", "5 BCE", "5 squared", "5 cubed", "5 at least", "5 at most",
     "5 or more", "5 or less"],
    ["2", "2 thirds", "2 fifths", "2 quarters", "2 halves", "2 hundredths"],
    ["5", "5 and a half", "5 hours and a half", "5 per 100", "5 out of 8", "5 of 9", "5 in 10"],
    ["3/5/2020", "6/10/2020", "3/10100", "5/3/2020"],
    ["2020-03-05", "2012", "2020-04-04", "2020-05-03"],
    ["7 remainder 2", "7 remainder 3", "7", "7 R 2"],
    ["4\\text{ out of }5", "4", "4\\text{ out of }6"],
    ["5\\text{ hours later}", "5\\text{ hours earlier}", "5\\text{ hours ago}", "5\\text{ hours}"],
    ["2 more", "2 less", "2 fewer", "2"],
    ["rotated 30°", "rotated 30° clockwise", "30° clockwise", "30° counterclockwise", "30°"],
    ["12:30:45", "1:30:00", "4:10:15", "3:4:5"],
    ["10:30 - 11:30", "10:30 - 12:30", "10:30"],
    ["$5 and 20 cents", "$20 and 5 cents", "5"],
    ["10% off", "10%", "10% discount", "10% of 50"],
    ["5 (five)", "5 (six)"],
    ["5 min x", "5", "\\min(5, x)"],
    ["5 sec x", "5"],
    ["4 hours after noon", "4 hours before noon", "4 hours"],
    ["2 meters and 3 seconds", "3 meters and 2 seconds", "\\{2,3\\}"],
    ["3", "3 gross", "3 score", "3 dozen", "3 great gross", "3 tens", "3 myriad", "3 googol", "3 grand"],
    ["500", "500 pounds gross", "$500 gross"],
    ["3\\text{ gross}", "3\\text{ score}", "3\\text{ tens}", "3"],
    ["5°C", "5 K", "-5°F"],
    ["3\\text{M}", "3\\text{B}", "3\\text{ K}", "3\\text{k}", "3\\text{T}", "3", "3 thou",
     "3\\text{ tn}", "3\\text{ cr}"],
    ["3 zillion", "3 sextillion", "3 septillion", "3 octillion", "3 nonillion", "3 decillion", "3"],
    ["3 Billionen", "3 Billion", "3 Millionen", "3 Tausend", "3"],
    ["3 milyon", "3 milyar", "3 ribu", "3 hundert", "3"],
    ["3 sixteenths", "3 twentieths", "3 thirtieths", "3 billionths", "3 fifteenths", "3"],
    ["3 basis points", "3 ppb", "3 ppm", "3%", "3", "3 percentage points"],
    ["3\\text{ pp}", "3\\text{ bps}", "3"],
]  # fmt: skip


@pytest.mark.parametrize("answers", DIFFERENT, ids=lambda answers: answers[0])
def test_quantities_that_differ_in_a_word(answers: list[str]) -> None:
    found = {answer: key(answer) for answer in answers}
    known = [k for k in found.values() if k is not None]
    assert len(set(known)) == len(known) > 1, found
