"""Converts an `AlbertTokenizer` to Hugging Face's `tokenizer.json`, and back.

For the files written here, `AutoTokenizer` returns our ids. `transformers`' own class
`AlbertTokenizer` rebuilds the steps and returns other ids for about a third of all
lines of prose, so the files name the general class, which runs the steps as written:

1. the normalization of `text.normalization` (white space, NFKD, combining class, final
   sigma, lower case) as regular expressions;
2. the vocabulary's own character map;
3. the unigram model, with user-defined pieces scored as SentencePiece scores them.

The digit-comma rule, which splits a piece again after it was chosen, cannot be
expressed. Here those pieces are never chosen, which is equivalent unless a piece such
as `,000` then wins against `,` and `000`. Special pieces in the text are always
special.
"""

import base64
import json
import re
from typing import Any

from albert_tf.errors import DataError, UsageError, require
from albert_tf.text import normalization
from albert_tf.text.added_tokens import checked
from albert_tf.text.tokenizer import Tokenizer

# Below every real score, so that a piece with this score is never chosen.
_NEVER = -1000.0


def to_json(tokenizer: Tokenizer) -> dict:
    """Returns the content of the `tokenizer.json` of an `AlbertTokenizer`.

    Raises `UsageError` if its model is not a unigram model, or there are added tokens,
    for which the steps after a mask would have to differ.
    """
    message = "tokenizer: added tokens cannot be written to ALBERT's tokenizer.json"
    require(not tokenizer.added_tokens, message, *tokenizer.added_tokens[:1])
    import tokenizers
    from tokenizers import AddedToken, decoders, models

    proto = _proto(tokenizer.model)
    specials = [tokenizer.id_to_token(i) for i in tokenizer.special_ids]
    result = tokenizers.Tokenizer(
        models.Unigram(_vocabulary(tokenizer, proto), tokenizer.unk_id)
    )
    result.add_special_tokens(
        [
            # A mask absorbs the space before it.
            AddedToken(
                token,
                lstrip=token == tokenizer.id_to_token(tokenizer.mask_id),
                normalized=False,
                special=True,
            )
            for token in specials
        ]
    )
    result.normalizer = _normalizer(tokenizer, proto)
    result.pre_tokenizer = _pre_tokenizer(specials)
    result.decoder = decoders.Metaspace(prepend_scheme="always")
    return {**json.loads(result.to_str()), "post_processor": template(tokenizer)}


def template(tokenizer: Tokenizer) -> dict:
    """Returns the `post_processor` that puts our special tokens around texts."""
    ids = {tokenizer.id_to_token(i): i for i in (tokenizer.cls_id, tokenizer.sep_id)}
    cls, sep = ids

    def part(kind, name, segment=0):
        return {kind: {"id": name, "type_id": segment}}

    end, separators = part("SpecialToken", sep), tokenizer.pair_separators
    first = [part("SpecialToken", cls), part("Sequence", "A"), end]
    last = int(separators == 1)
    second = [part("Sequence", "B", last), part("SpecialToken", sep, last)]
    special = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()}
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": first + [end] * (separators - 1) + second,
        "special_tokens": special,
    }


def _normalizer(tokenizer, proto):
    from tokenizers import Regex, normalizers

    # The left end is kept: a space after a special piece starts a word.
    strip = normalizers.Strip(left=False, right=True)
    steps = [
        normalizers.Replace(Regex(normalization.white_space_pattern()), " "),
        strip,
    ]
    if not tokenizer.keep_accents:
        marks = normalization.combining_pattern().pattern
        steps += [normalizers.NFKD(), normalizers.Replace(Regex(marks), "")]
    if tokenizer.do_lower_case:
        # Their lower-casing ignores context, so final sigma is handled before it.
        before, _, after = normalization.final_sigma_pattern().partition("Σ")
        after = after.removeprefix("(").removesuffix(")")
        sigma = Regex(f"{before}\\KΣ(?={after})")
        steps += [normalizers.Replace(sigma, "ς"), normalizers.Lowercase()]
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    return normalizers.Sequence(
        [*steps, normalizers.Replace(Regex(" {2,}"), " "), strip]
    )


def _pre_tokenizer(specials: list[str]):
    from tokenizers import Regex, pre_tokenizers

    # Prevents text that lower-casing turned into a special piece from being one.
    tails = (f"{re.escape(s[0])}(?={re.escape(s[1:])})" for s in specials if s)
    return pre_tokenizers.Sequence(
        [
            # Text that follows a special piece without a space continues a word.
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Split(Regex("|".join(tails)), "isolated"),
        ]
    )


def _vocabulary(tokenizer, proto) -> list[tuple[str, float]]:
    kinds = type(proto.pieces[0])
    best = max(p.score for p in proto.pieces if p.type == kinds.NORMAL)
    never = tokenizer.replacements
    result = []
    for i, piece in enumerate(proto.pieces):
        score = piece.score
        if piece.type == kinds.USER_DEFINED:
            score = len(piece.piece) * best - 0.1
        elif piece.type != kinds.NORMAL or i in never:
            score = _NEVER
        result.append((piece.piece, score))
    return result


def _proto(model: bytes):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise UsageError("tokenizer: only a unigram model can become a tokenizer.json")
    return proto


# Errors that a damaged file can raise while it is read.
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError)
_DAMAGED += (OverflowError, RecursionError)


def parse(data: bytes, name: str) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` whose ids are 0, 1, ...

    Raises `DataError` if the file is damaged, two tokens share an id, or an id is
    missing, which makes libraries allocate memory or fail.
    """
    try:
        content = json.loads(data)
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):
            vocabulary = {piece: i for i, (piece, _) in enumerate(vocabulary)}
        content["added_tokens"] = added = content.get("added_tokens") or []
        pairs = {*vocabulary.items(), *((t["content"], t["id"]) for t in added)}
        ids = sorted(i for _, i in pairs)
        fits = ids == [*range(len({token for token, _ in pairs}))]
    except _DAMAGED:
        raise DataError(f"{name}: not a tokenizer.json") from None
    message = f"{name}: the ids of its {len(ids)} tokens must be 0, 1, ..."
    require(fits, message, error=DataError)
    return content


def model_type(data: bytes) -> str | None:
    """Returns the model type in a `tokenizer.json`; None if it is another file."""
    try:
        return json.loads(data)["model"]["type"]
    except _DAMAGED:
        return None


def to_model(data: bytes, name: str) -> tuple[bytes, dict[str, Any]]:
    """Returns the SentencePiece model and the options stored in a `tokenizer.json`.

    Raises `DataError` if the model is damaged, or its steps differ from ALBERT's.
    """
    content = parse(data, name)
    try:
        model = _to_proto(content).SerializeToString()
        before, after = (
            step_names(content.get(key)) for key in ("normalizer", "pre_tokenizer")
        )
        plain = not content["model"].get("byte_fallback")
    except _DAMAGED:
        raise DataError(f"{name}: not the tokenizer.json of a unigram model") from None
    options = {
        "do_lower_case": "Lowercase" in before,
        "keep_accents": "NFKD" not in before,
    }
    theirs = iter(_NORMALIZER)
    if after == ["WhitespaceSplit", "Metaspace always"]:
        fits = all(step in theirs for step in before)
        fits = fits and ("NFKD" in before) == ("StripAccents" in before)
    else:  # as `to_json` writes them
        ours = "Replace Strip NFKD Replace Replace Lowercase Precompiled Replace Strip"
        parts = iter(ours.split())
        spaces = f"Replace {normalization.white_space_pattern()}:  "
        fits = after == ["Metaspace first", "Split"] and before[:1] == [spaces]
        fits = fits and all(step.split(" ")[0] in parts for step in before)
    message = f"{name}: the steps of a unigram model must be ALBERT's, without bytes"
    require(fits and plain, message, before + after, error=DataError)
    return model, {**options, "added_tokens": checked(content["added_tokens"], name)}


# Hugging Face's steps of ALBERT before the model, each of which may be missing.
_NORMALIZER = (
    'Replace ``: "',
    "Replace '': \"",
    *("NFKD", "StripAccents", "Lowercase", "Precompiled"),
    "Replace  {2,}:  ",
)


def step_names(step: Any) -> list[str]:
    """Returns the steps of a normalizer or pre-tokenizer, with their key parameters."""
    if step is None:
        return []
    kind = step["type"]
    if kind == "Sequence":
        parts = step["normalizers"] if "normalizers" in step else step["pretokenizers"]
        return [name for part in parts for name in step_names(part)]
    if kind == "Replace":
        (pattern,) = step["pattern"].values()
        return [f"{kind} {pattern}: {step['content']}"]
    if kind == "ByteLevel":
        return [f"{kind} {step.get('add_prefix_space')}"]
    if kind == "Metaspace":
        scheme = "always" if step.get("add_prefix_space") else "never"
        fits = step["replacement"] == "▁" and step.get("split", True)
        return [f"{kind} {step.get('prepend_scheme', scheme)}" if fits else kind]
    return [kind]


def _to_proto(content):
    from sentencepiece import sentencepiece_model_pb2 as pb2

    model = content["model"]
    vocabulary = [(str(piece), float(score)) for piece, score in model["vocab"]]
    unk_id = model["unk_id"]
    special = {t["content"] for t in content["added_tokens"] if t["special"]}
    charsmap = base64.b64decode(_charsmap(content["normalizer"]) or "")
    proto = pb2.ModelProto()
    proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
    proto.trainer_spec.vocab_size = len(vocabulary)
    proto.trainer_spec.unk_id = unk_id
    proto.normalizer_spec.name = "nmt_nfkc"
    proto.normalizer_spec.precompiled_charsmap = charsmap
    kinds = pb2.ModelProto.SentencePiece
    for i, (piece, score) in enumerate(vocabulary):
        kind = kinds.NORMAL
        if i == unk_id:
            kind = kinds.UNKNOWN
        elif piece in special:
            kind = kinds.CONTROL
        elif score == 0.0:
            kind = kinds.USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=kind)
    return proto


def _charsmap(normalizer) -> str | None:
    if not isinstance(normalizer, dict):
        return None
    if normalizer.get("type") == "Precompiled":
        return normalizer["precompiled_charsmap"]
    charsmaps = map(_charsmap, normalizer.get("normalizers", ()))
    return next((charsmap for charsmap in charsmaps if charsmap), None)
