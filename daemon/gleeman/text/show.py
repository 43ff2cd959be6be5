"""What `gleeman phonemes` shows: the text room's own work on a line, in this process."""

from __future__ import annotations

from typing import Any

from .frontend import accent_of, language_of, read


def explain(text: str, *, voice: str = "af_heart", language: str = "auto") -> dict[str, Any]:
    """How `voice` would read `text`.

    {"spoken": the words as they will be read, "clauses": [{"spoken", "phonemes", "start", "end",
    "language", "sentence_phonemes", "words": [{"text", "phonemes", "start", "end"}]}], "warnings": [...]}
    with starts and ends in UTF-8 bytes of `text`.

    Raises InputError nothing-to-say. The first call of a language takes seconds: it loads its lexicon.
    """
    reading = read(text, language, accent_of(voice), True, bare=language_of(voice))
    sent = text.encode("utf-8", "surrogatepass")
    return {
        "spoken": reading.spoken,
        "clauses": [
            {
                "spoken": clause.spoken,
                "phonemes": clause.phonemes,
                "start": clause.begin,
                "end": clause.end,
                "language": clause.language,
                "sentence_phonemes": clause.sentence_phonemes,
                "words": [
                    {
                        "text": sent[word.begin : word.end].decode("utf-8", "replace"),
                        "phonemes": clause.phonemes[word.first : word.last],
                        "start": word.begin,
                        "end": word.end,
                    }
                    for word in clause.words
                ],
            }
            for clause in reading.clauses
        ],
        "warnings": list(reading.warnings),
    }
