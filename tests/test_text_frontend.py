"""Text to clauses with phonemes: spans, alphabet, mixed languages, client phonemes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleeman.errors import InputError
from gleeman.records import Clause
from gleeman.text import chinese, english
from gleeman.text.alphabet import ALPHABET, MAX_PHONEMES, unknown
from gleeman.text.carried import REST_TOGETHER, places
from gleeman.text.clean import is_han
from gleeman.text.frontend import Reading, accent_of, language_of, read, read_phonemes
from gleeman.text.show import explain

REAL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module", autouse=True)
def _languages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load the languages once, with the segmenter's cache in a folder of the test's own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GLEEMAN_HOME", str(tmp_path_factory.mktemp("home")))
    chinese.load()
    english.load(False)
    yield
    patch.undo()


def check(text: str, reading: Reading, *, phonemes: bool = True) -> None:
    """What must hold for any reading of any text."""
    sent = text.encode("utf-8", "surrogatepass")
    inside = {i for i, byte in enumerate(sent) if byte & 0xC0 == 0x80}
    last_begin = last_end = 0
    for clause in reading.clauses:
        assert 0 <= clause.begin < clause.end <= len(sent)
        assert clause.begin >= last_begin
        assert clause.end >= last_end
        assert inside.isdisjoint((clause.begin, clause.end))
        last_begin, last_end = clause.begin, clause.end
        assert unknown(clause.phonemes) == ""
        assert len(clause.phonemes) <= MAX_PHONEMES
        assert clause.sentence_phonemes >= 1
        _check_place(clause)
        assert clause.language in ("en-us", "en-gb", "zh")
        assert clause.spoken
        _check_words(clause, inside, phonemes)
    assert reading.clauses[-1].ends_sentence
    if phonemes:
        _check_counts(reading.clauses)


def _check_words(clause: Clause, inside: set[int], phonemes: bool) -> None:
    assert clause.words
    symbols = clause.phonemes if phonemes else clause.spoken
    assert (clause.phonemes != "") == phonemes
    begin = first = 0
    for word in clause.words:
        assert clause.begin <= word.begin < word.end <= clause.end
        assert word.begin >= begin
        assert inside.isdisjoint((word.begin, word.end))
        assert first <= word.first < word.last <= len(symbols)
        assert symbols[word.first : word.last].strip() == symbols[word.first : word.last]
        begin, first = word.begin, word.last


def _check_place(clause: Clause) -> None:
    """Its phonemes stand where the clause says, and nothing but a space follows before the next clause."""
    if not clause.sentence:
        assert clause.sentence_first == clause.sentence_last == 0
        return
    assert len(clause.sentence) <= REST_TOGETHER
    own = clause.sentence[clause.sentence_first : clause.sentence_last]
    assert own in (clause.phonemes, clause.phonemes + " ")
    assert own != clause.sentence


def _check_counts(clauses: tuple[Clause, ...]) -> None:
    """A clause carries its sentence's count, which is about the sum of the sentence's clauses."""
    total: list[Clause] = []
    for clause in clauses:
        total.append(clause)
        if clause.ends_sentence:
            tokens = sum(len(c.phonemes) for c in total)
            assert {c.sentence_phonemes for c in total} == {total[0].sentence_phonemes}
            assert tokens <= total[0].sentence_phonemes <= tokens + 2 * len(total) + 12
            total = []


def said(text: str, language: str = "auto", british: bool = False) -> str:
    return " | ".join(clause.phonemes for clause in read(text, language, british, True).clauses)


def sources(text: str, reading: Reading) -> list[str]:
    return [text.encode()[w.begin : w.end].decode() for clause in reading.clauses for w in clause.words]


# ---- what is said --------------------------------------------------------------------------------


def test_american_and_british_read_one_text_differently() -> None:
    assert said("Ask the doctor.") == "ˈæsk ðə dˈɑktəɹ."
    assert said("Ask the doctor.", british=True) == "ˈɑːsk ðə dˈɒktə."
    assert said("Ask the doctor.", "en-gb") == said("Ask the doctor.", british=True)
    assert said("Ask the doctor.", "en-us", british=True) == said("Ask the doctor.")
    assert read("Ask.", "auto", True, True).clauses[0].language == "en-gb"


def test_the_accent_and_the_language_of_bare_numbers_come_from_the_voice() -> None:
    assert [accent_of(v) for v in ("bf_emma", "bm_lewis", "af_heart", "zf_xiaoni", "bob")] == [True, True] + [
        False
    ] * 3
    assert language_of("zf_xiaoni") == "zh"
    assert said("7") == "sˈɛvən"
    assert read("7", "auto", False, True, bare="zh").clauses[0].phonemes == "ʨʰi→"


def test_chinese_is_read_with_tones_and_its_marks_become_pauses() -> None:
    reading = read("你好，世界！", "auto", False, True)
    assert [c.phonemes for c in reading.clauses] == ["ni↓xau↓, ʂɨ↘ʨje↘!"]
    assert reading.clauses[0].language == "zh"
    assert sources("你好，世界！", reading) == ["你好", "世界"]


def test_an_english_word_in_a_chinese_line_and_the_reverse_are_both_read() -> None:
    assert said("请找 John 拿钥匙。") == "ʨʰi↓ŋ ꭧau↓ ʤˈɑn na↗ jau↘ʂɨ."
    assert said("Tell 李明 to wait.") == "tˈɛl li↓mi↗ŋ tə wˈAt."


def test_a_lone_letter_within_chinese_is_a_letter() -> None:
    assert "ˈA" in said("把钥匙A插进B门。")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The bill is $7,412.36.", ["The", "bill", "is", "$7,412.36"]),
        ("Call 555-013-4567 now.", ["Call", *["555-013-4567"] * 10, "now"]),
        ("Dr. Marsh, “the Fox”!", ["Dr", "Marsh", "the", "Fox"]),
        ("这座灯塔建于1987年。", ["这座", "灯塔", "建于", "1987年"]),
        ("付￥1800。", ["付", "￥1800", "￥1800"]),
        ("Ｈello　ｗorld", ["Ｈello", "ｗorld"]),
        ("Caf\u00e9 😀 naïve", ["Café", "naïve"]),
    ],
)
def test_a_word_covers_what_it_came_from_in_the_text_as_sent(text: str, words: list[str]) -> None:
    reading = read(text, "auto", False, True)
    check(text, reading)
    assert sources(text, reading) == words


def test_a_short_clause_carries_its_sentence_s_phoneme_count() -> None:
    text = "Well met, traveller, I have waited here under this tree since the first frost. Go."
    reading = read(text, "auto", False, True)
    assert len(reading.clauses) == 3
    first, second, third = reading.clauses
    assert (
        first.sentence_phonemes == second.sentence_phonemes == len(first.phonemes) + 1 + len(second.phonemes)
    )
    assert [first.ends_sentence, second.ends_sentence, third.ends_sentence] == [False, True, True]
    assert third.sentence_phonemes == len(third.phonemes)


@pytest.mark.parametrize(
    "text",
    [
        "Well met, traveller, I have waited here under this tree since the first frost.",
        "旅行者，我等你很久了，请坐下来喝杯热茶。",
        "Traveller 李明, 我等你很久了, and I have waited here under this tree.",
    ],
)
def test_the_clauses_of_a_sentence_know_their_place_in_it(text: str) -> None:
    first, second = read(text, "auto", False, True).clauses
    assert first.sentence == second.sentence == f"{first.phonemes} {second.phonemes}"
    assert len(first.sentence) == first.sentence_phonemes
    assert (first.sentence_first, first.sentence_last) == (0, second.sentence_first)
    assert second.sentence_last == len(second.sentence)
    assert not any(clause.sentence for clause in read(text, "auto", False, False).clauses)


def test_a_sentence_in_one_clause_is_read_by_itself() -> None:
    for text in ("Go.", "Halt! Who goes there?", "你好，世界！"):
        assert {clause.sentence for clause in read(text, "auto", False, True).clauses} == {""}


def test_phonemes_of_the_client_know_their_place_too() -> None:
    given_ = "wˈɛl mˈɛt, tɹˈævləɹ, ˌI hæv wˈAtᵻd hˈɪɹ ˌʌndəɹ ðˈɪs tɹˈi."
    first, second = read_phonemes(given_, "en", False, True).clauses
    assert first.sentence == second.sentence == given_
    assert given_[second.sentence_first :] == second.phonemes


def test_a_long_sentence_is_read_in_stretches() -> None:
    text = "I have a torch, " + "and the road behind the hill is long and cold and dark, " * 9 + "you see."
    clauses = read(text, "auto", False, True).clauses
    check(text, Reading("", clauses, ()))
    stretches = [sentence for sentence in dict.fromkeys(c.sentence for c in clauses) if sentence]
    assert len(clauses) > len(stretches) > 1
    assert [clause.ends_sentence for clause in clauses] == [False] * (len(clauses) - 1) + [True]


def test_the_places_of_clauses_follow_their_lengths() -> None:
    assert places(["a" * 500], [False]) == [("", 0, 0)]
    assert places(["ab,", "c."], [True, False]) == [("ab, c.", 0, 4), ("ab, c.", 4, 6)]
    assert places(["ab—", "c."], [False, True]) == [("ab—c.", 0, 3), ("ab—c.", 3, 5)]
    long = ["a" * 100, "b" * 59, "c" * 150, "d" * 169, "e" * 320]
    first, second = "a" * 100 + " " + "b" * 59, "c" * 150 + " " + "d" * 169
    assert [place.sentence for place in places(long, [True] * 5)] == [first, first, second, second, ""]


@pytest.mark.parametrize("text", ["…！？", "---", "☃☃", "🙂", "()", "“”", "。"])
@pytest.mark.parametrize("phonemes", [True, False])
def test_nothing_speakable_is_said_so(text: str, phonemes: bool) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "auto", False, phonemes)
    assert caught.value.code == "nothing-to-say"


@pytest.mark.parametrize(
    "text",
    [
        "Vrrgthk",
        "-1",
        "Karma: -1.",
        "嗯。",
        "呣",
        "欸",
        "9" * 200,
        "a" * 500,
        "A1B2C3",
        "привет",
        "½",
        "№ 5",
        "100%",
    ],
)
def test_strange_words_are_read_or_named_never_an_exception(text: str) -> None:
    reading = read(text, "auto", False, True)
    check(text, reading)
    assert not reading.warnings


def test_what_has_no_reading_is_named_and_the_rest_is_said() -> None:
    reading = read("他喜欢桛。", "auto", False, True)
    check("他喜欢桛。", reading)
    assert len(reading.warnings) == 1
    assert "桛" in reading.warnings[0]


def test_the_plain_reading_has_the_same_clauses_and_no_phonemes() -> None:
    for text in (
        "Well met, traveller, I have waited here under this tree. 你好，世界！",
        "Dr. Marsh has 3,281 arrows.",
    ):
        full, plain = read(text, "auto", False, True), read(text, "auto", False, False)
        check(text, plain, phonemes=False)
        assert [(c.begin, c.end) for c in full.clauses] == [(c.begin, c.end) for c in plain.clauses]


# ---- the client's own phonemes -------------------------------------------------------------------


def test_phonemes_of_the_client_are_taken_as_they_are() -> None:
    given_ = "həlˈO ðˈɛɹ. kˈʌm ˈɪn!"
    reading = read_phonemes(given_, "en", False, True)
    check(given_, reading)
    assert [c.phonemes for c in reading.clauses] == ["həlˈO ðˈɛɹ.", "kˈʌm ˈɪn!"]
    assert sources(given_, reading) == ["həlˈO", "ðˈɛɹ", "kˈʌm", "ˈɪn"]
    check(given_, read_phonemes(given_, "en", False, False), phonemes=False)


def test_phonemes_outside_the_alphabet_are_named() -> None:
    with pytest.raises(InputError, match=r"'g' \(U\+0067\), '1'") as caught:
        read_phonemes("gəʊ1", "en", False, True)
    assert caught.value.code == "bad-phonemes"


def test_marks_without_phonemes_are_nothing_to_say() -> None:
    with pytest.raises(InputError) as caught:
        read_phonemes("… !", "en", False, True)
    assert caught.value.code == "nothing-to-say"


def test_the_alphabet_is_the_model_s() -> None:
    import gleeman.speech.models.kokoro as kokoro

    table = json.loads((Path(kokoro.__file__).parent / "data" / "phonemes.json").read_text("utf-8"))
    assert set(table["symbols"]) == ALPHABET


# ---- anything at all -----------------------------------------------------------------------------

WORDS = [
    *("Dr.", "etc.", "No.", "7", "3,281", "$7.50", "217.36", "19:05", "2026-03-05", "5-301", "20ml", "AK-47"),
    *(
        "你好",
        "3/4",
        "的人",
        "hello",
        "WORLD",
        "II",
        "don't",
        "…",
        "——",
        "“go”",
        "(no)",
        "。",
        "，",
        "£3",
        "½",
    ),
    *("100%", "x.y", "www.a.com", "😀", "[b](/c/)", "桛", "9" * 70),
]
TEXTS = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="abcXY 12.,$%:-'\"!?…你好世界一不3年。，（）\n“”<>*[]/@&", max_size=120),
    st.lists(
        st.sampled_from(WORDS),
        max_size=30,
    ).map(" ".join),
)


def unsaid(text: str, reading: Reading) -> str:
    """Letters and digits of `text` that lie in no word."""
    if "<" in text:  # may be mark-up
        return ""
    covered = bytearray(len(text.encode("utf-8", "surrogatepass")))
    for clause in reading.clauses:
        for word in clause.words:
            covered[word.begin : word.end] = b"\x01" * (word.end - word.begin)
    left, offset = "", 0
    for character in text:
        if not covered[offset] and (character.isalnum() and (character.isascii() or is_han(character))):
            left += character
        offset += len(character.encode("utf-8", "surrogatepass"))
    return left


def read_or_none(text: str, language: str, british: bool, phonemes: bool) -> Reading | None:
    try:
        return read(text, language, british, phonemes)
    except InputError as error:
        if error.code != "nothing-to-say":
            raise
        return None


@REAL
@given(TEXTS, st.sampled_from(["auto", "en", "zh"]))
def test_any_text_is_read_within_the_rules_and_loses_no_letter_unnamed(text: str, language: str) -> None:
    reading = read_or_none(text, language, False, True)
    if reading is None:
        return
    check(text, reading)
    named = "".join(reading.warnings)
    assert [character for character in unsaid(text, reading) if character not in named] == []


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_any_text_is_read_plain_within_the_rules_and_loses_no_letter(text: str) -> None:
    reading = read_or_none(text, "auto", False, False)
    if reading is None:
        return
    check(text, reading, phonemes=False)
    assert unsaid(text, reading) == ""


@pytest.mark.parametrize(
    "text",
    [
        " ".join(["stone", "river", "lantern", "copper", "window", "garden", "thunder"] * 70),
        "石头河流灯笼铜窗花园雷声" * 330,
        "有12个人，" * 500,
        "3,281 arrows and $7.50, " * 160,
        "1" * 4000,
        "ab" * 2000,
        "a.b." * 1000,
        "“(" * 2000 + "go",
    ],
)
def test_the_longest_text_is_read_whole(text: str) -> None:
    reading = read(text, "auto", False, True)
    check(text, reading)
    words = read(text, "auto", False, False)
    check(text, words, phonemes=False)
    assert not reading.warnings


def test_every_reported_case_is_read_or_refused() -> None:
    """Lines of the kind that broke other engines."""
    for text in (
        "他……他真的走了？——不会吧~~",
        "*sniff* You came back.",
        "倒入20ml圣水，血压升到150mmHg。",
        "补丁在 www.example.com/patch 下载。",
        "Hmm.. who left this here?",
        "CUT THE ROPE! RUN NOW!",
        "3. Our shield is 45% charged.",
        '他说\\"走\\"。',
    ):
        check(text, read(text, "auto", False, True))


def test_explain_shows_the_words_and_their_places() -> None:
    shown = explain("Halt! 你好", voice="bf_emma")
    assert shown["clauses"][0]["phonemes"] == "hˈɔːlt!"
    assert [c["start"] for c in shown["clauses"]] == [0, 6]
    assert shown["clauses"][1]["words"][0]["text"] == "你好"
    json.dumps(shown)
