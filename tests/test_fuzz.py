"""Damaged run folders against every command; see tests/fuzzing.py."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzz_commands import COMMANDS, Answer
from fuzz_damage import Damage
from fuzzing import Case, Fuzz, fast_folder

CASES = 2000


@pytest.mark.timeout(900)  # about 40 s, where the machine is not busy
def test_a_damaged_run_is_shown_as_it_was_or_with_a_line_about_it() -> None:
    wrong: list[Case] = []
    seen: Counter[tuple[str, int]] = Counter()
    with fast_folder() as folder:
        fuzz = Fuzz(folder)
        for number in range(CASES):
            case = fuzz.case(seed=0, number=number)
            seen[case.command, case.answer.code] += 1
            wrong += [case] if case.wrong else []
    assert not wrong, "\n".join(map(str, wrong[:10]))
    both = [name for name in COMMANDS if seen[name, 0] and seen[name, 2]]
    due = {name for name, command in COMMANDS.items() if command.weight}
    assert due - {*both} <= {"compare", "workers"}, seen  # the cases are not all refused, nor all harmless
    assert seen["verify", 1] > 100


def test_what_the_judge_does_not_let_pass() -> None:
    clean = Answer(0, "loss 0.5", ["orlomo: note: changed"])
    digit = Damage("events.csv", "a digit")
    report, verify = COMMANDS["report"], COMMANDS["verify"]

    def judge(code: int, shown: str, *notes: str, printed: str = "", damage: Damage = digit) -> str:
        return "; ".join(report.judge(damage, clean, Answer(code, shown, list(notes), printed)))

    said = "orlomo: note: events.csv is not what the run wrote"
    assert judge(0, "loss 0.5", *clean.notes) == ""
    assert judge(0, "loss 0.7", *clean.notes) == "another answer, without a word"
    assert judge(0, "loss 0.7", *clean.notes, said) == ""
    assert judge(0, "loss 0.7", *clean.notes, damage=Damage("events.csv", "a digit", after=True)) == ""
    assert judge(1, "loss 0.5") == "exit code 1"
    assert judge(2, "", said) == ""
    assert judge(2, "", "KeyError: 'kind'") == "an error that is not one line"
    assert "a traceback" in judge(2, "", "Traceback (most recent call last):", "KeyError: 'kind'")
    assert "control characters" in judge(2, "", said, printed="\x1b[31mred")
    assert verify.judge(digit, clean, clean) == ["the damage was not found"]
    assert verify.judge(Damage("log.txt", "a digit"), clean, clean) == []
