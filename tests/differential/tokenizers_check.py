#!/usr/bin/env python3
"""Compares Quire's tokenizers with the PyPI package `tokenizers`, on vocabularies trained here and on random texts.

  tokenizers_check.py --tool BUILD/tokenize_tool [--texts N] [--seed S]

Checks, for each pre-tokenizer (gpt-2, smollm, llama-bpe, qwen2): the words of every Unicode character in context and of
random texts; the ids of random texts under a small trained vocabulary, with control tokens as text and parsed, and with
user-defined tokens. Then SentencePiece-style vocabularies with byte fallback, with and without the space prefix, and the
decoding of all ids. Exits 1 and prints the first differences if there are any.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
SPACE = "\u2581"


def by_regex(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


PRE_TOKENIZERS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "llama-bpe": by_regex(LLAMA % "{1,3}"),
    "qwen2": by_regex(LLAMA % ""),
}
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im"]
USER_DEFINED = ["<tool_call>", "</tool_call>", "<think>"]

FRAGMENTS = [
    "'s", "'S", "'t", "'T", "'re", "'RE", "'Ve", "'ll", "'LL", "'d", "'M", "'\u017f", "'", "''", " '", "\r\n", "\n", "\n\n", "\r",
    "\t", "\t\t", " ", "  ", "   ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u200d", "\ufeff", "0", "12", "345", "6789",
    "1234567", "\u0663\u0664", "\u00bd", "\u2167", "\u0967", "e\u0301", "\u00e9", "a\u0323\u0307", "\u1e0d\u0307", "\u212b", "\u0344",
    "\u1100\u1161\u11a8", "\uac01", "\U0001f600", "\U0001f469\u200d\U0001f680", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "\u4f60\u597d", "\u3053\u3093", "\u0395\u03bb", "\u0420\u0443\u0441", "\u05e9\u05dc", "\u0639\u0631\u0628", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e44\u0e17\u0e22",
    "the", "The", "hello", "world", "tokenizer", "ing", "un", "a", "b", "Z", "x1", ".", ",", "?!", "...", "--", "\u2014", "(", ")", "{",
    "}", "==", "+=", "//", "\\", "\"", "<", ">", "<|", "|>", "_", "__init__", SPACE, "\u0000", "\u0004", "\u001b", "\u007f",
] + CONTROL + USER_DEFINED


def random_text(rng):
    parts = []
    for _ in range(rng.randint(0, 24)):
        kind = rng.random()
        if kind < 0.75:
            parts.append(rng.choice(FRAGMENTS))
        elif kind < 0.9:
            parts.append(rng.choice(FRAGMENTS) * rng.randint(1, 9))
        else:
            while True:
                c = rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
                if unicodedata.category(chr(c)) not in ("Cs", "Cn"):
                    break
            parts.append(chr(c))
    return "".join(parts)


def corpus(rng, size):
    """Texts with words that repeat, so that training finds merges."""
    words = [f for f in FRAGMENTS if f not in CONTROL and f not in USER_DEFINED]
    common = ["".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(150)]
    return [" ".join(rng.choices(common, k=30)) + random_text(rng) for _ in range(size)]


class Checker:
    def __init__(self, tool):
        self.tool = tool
        self.failed = 0

    def run(self, arguments, lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run([self.tool, *arguments], input=text, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.tool} {' '.join(arguments)}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.split("\n")[:-1]]

    def compare(self, what, inputs, expected, found):
        differences = [i for i, (a, b) in enumerate(zip(expected, found)) if a != b]
        print(f"{what}: {len(inputs)} compared, {len(differences)} differ")
        if len(expected) != len(found):
            sys.exit(f"{what}: {len(expected)} answers wanted, {len(found)} found")
        for i in differences[:5]:
            print(f"  {inputs[i]!r}\n    tokenizers {expected[i]}\n    quire      {found[i]}")
        self.failed += bool(differences)

    def round_trip(self, vocabulary, texts, special=False):
        """The ids of the texts, and the texts of the ids."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vocabulary.json"
            path.write_text(json.dumps(vocabulary))
            ids = self.run([str(path)], [{"text": text, "special": special} for text in texts])
            return ids, self.run([str(path), "--decode"], ids)

    def encode(self, what, vocabulary, reference, texts, special):
        ids, decoded = self.round_trip(vocabulary, texts, special)
        expected = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
        self.compare(what, texts, expected, ids)
        return decoded


def characters():
    """Every character that Python's Unicode table knows, but of ideographs, Hangul and private use only one in sixteen."""
    for c in range(0x110000):
        category = unicodedata.category(chr(c))
        if category in ("Cs", "Cn") or (c >= 0x3400 and category in ("Lo", "Co") and c % 16 != 0):
            continue
        yield chr(c)


def check_words(checker, texts):
    everything = [f"x{c}{c}x1{c}1 {c} .{c}.{c}\n{c}'s" for c in characters()]
    for name, pre in PRE_TOKENIZERS.items():
        for what, inputs in (("every character", everything), ("random texts", texts)):
            expected = [[len(word) for word, _ in pre.pre_tokenize_str(text)] for text in inputs]
            checker.compare(f"words {name}, {what}", inputs, expected, checker.run(["--words", name], inputs))


def check_nfc(checker, rng, texts):
    """NFC shows in the ids of a vocabulary of bytes alone. `tokenizers` has an older Unicode table: some 50 combining marks
    are none to it. Texts for which it differs from Python's normalisation are compared with that."""
    reference = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    reference.normalizer = normalizers.NFC()
    reference.pre_tokenizer = PRE_TOKENIZERS["qwen2"]
    vocabulary = {"model": "gpt2", "pre": "qwen2", "tokens": sorted(pre_tokenizers.ByteLevel.alphabet())}
    marks = [chr(c) for c in range(0x300, 0x370)]
    inputs = texts + [f"a{c}\u0301{c}" for c in characters()]
    inputs += ["".join(rng.choices(marks + list("aeo\u1e0d\uac00\u11a8"), k=rng.randint(1, 12))) for _ in range(2000)]
    texts_of_one_mind = [t for t in inputs if reference.normalizer.normalize_str(t) == unicodedata.normalize("NFC", t)]
    checker.encode("NFC, as tokenizers", vocabulary, reference, texts_of_one_mind, False)
    checker.compare("NFC, as Python", inputs, [unicodedata.normalize("NFC", t) for t in inputs],
                    checker.round_trip(vocabulary, inputs)[1])


def train_byte_level(name, texts):
    tokenizer = Tokenizer(models.BPE())
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[name]
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def byte_level_case(name, texts):
    """The definition for `tokenizers` (without control tokens, and with) and the same vocabulary for Quire."""
    definition = train_byte_level(name, texts)
    model = definition["model"]
    if name == "llama-bpe":
        model["ignore_merges"] = True
        for word in ("Ġtokenizer", "worldhello", "unhelloing", "123"):  # words that no merge reaches
            model["vocab"].setdefault(word, len(model["vocab"]))
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    vocabulary = {"model": "gpt2", "pre": name, "merges": merges, "tokens": tokens + CONTROL + USER_DEFINED,
                  "types": [1] * len(tokens) + [3] * len(CONTROL) + [4] * len(USER_DEFINED)}
    references = {}
    for special in (False, True):
        reference = Tokenizer.from_str(json.dumps(definition))
        if special:
            reference.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
        else:  # the same ids, for names that no text spells
            reference.add_special_tokens([f"\ue000{i}\ue000" for i in range(len(CONTROL))])
        reference.add_tokens([AddedToken(t, normalized=False) for t in USER_DEFINED])
        references[special] = reference
    return vocabulary, references


def check_byte_level(checker, rng, texts):
    for name in PRE_TOKENIZERS:
        vocabulary, references = byte_level_case(name, corpus(rng, 200))
        for special, reference in references.items():
            what = f"ids {name}, control tokens {'parsed' if special else 'as text'}"
            decoded = checker.encode(what, vocabulary, reference, texts, special)
            if not special:
                original = [unicodedata.normalize("NFC", t) if name == "qwen2" else t for t in texts]
                checker.compare(f"decode {name}", texts, original, decoded)


def merges_by_score(scores):
    """The conversion from SentencePiece: every split of a token into two tokens is a merge, ranked by the token's score."""
    merges = []
    for token, score in scores.items():
        for i in range(1, len(token)):
            if token[:i] in scores and token[i:] in scores:
                merges.append((score, token[:i], token[i:]))
    merges.sort(key=lambda m: (-m[0], -len(m[1]), -len(m[2])))
    return [(left, right) for _, left, right in merges]


def sentencepiece_case(texts, space_prefix):
    steps = [normalizers.Prepend(SPACE)] if space_prefix else []
    normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", SPACE)])
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=900, limit_alphabet=90, show_progress=False, max_token_length=12))
    pieces = [t for t, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    if SPACE not in pieces:
        sys.exit("the trained alphabet lacks the space")
    scores = {piece: -float(rank) for rank, piece in enumerate(pieces)}
    tokens = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces
    ids = {token: i for i, token in enumerate(tokens)}
    reference = Tokenizer(models.BPE(vocab=ids, merges=merges_by_score(scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    reference.normalizer = normalizer
    vocabulary = {"model": "llama", "tokens": tokens + CONTROL, "scores": [0.0] * 257 + list(scores.values()) + [0.0] * len(CONTROL),
                  "types": [2] + [6] * 256 + [1] * len(pieces) + [3] * len(CONTROL), "unk": 0, "add_space_prefix": space_prefix}
    return vocabulary, reference


def check_sentencepiece(checker, rng, texts):
    for space_prefix in (False, True):
        vocabulary, reference = sentencepiece_case(corpus(rng, 200), space_prefix)
        what = f"ids SentencePiece{' with space prefix' if space_prefix else ''}"
        decoded = checker.encode(f"{what}, control tokens as text", vocabulary, reference, texts, False)
        checker.compare(f"decode{what[3:]}", texts, [t.replace(SPACE, " ") for t in texts], decoded)
        reference.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
        checker.encode(f"{what}, control tokens parsed", vocabulary, reference, texts, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="build/tokenize_tool")
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    texts = [random_text(rng) for _ in range(options.texts)]
    checker = Checker(options.tool)
    check_words(checker, texts)
    check_nfc(checker, rng, texts)
    check_byte_level(checker, rng, texts)
    check_sentencepiece(checker, rng, texts)
    sys.exit(1 if checker.failed else 0)


if __name__ == "__main__":
    main()
