"""A decoder and its parallelism from what launches its training: job files of torchtitan, arguments of Megatron-LM.

Both are read with the defaults of their own tool. What they say of parallelism are keys of `[iteration]`, by their
names there; the number of GPUs is that of the network, as the launcher would have it.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from topologies.checks import WeftError, integer, told
from topologies.text.input_text import read_input
from topologies.text.plain_data import parse_toml
from topologies.text.schema import Absent
from topologies.text.strict_yaml import parse_yaml
from workloads.models.language import MOST_LAYERS, LanguageModel, language_models

TITAN, MEGATRON = "torchtitan", "megatron"


class TrainingJob(NamedTuple):
    """What a file launches."""

    model: LanguageModel
    keys: Mapping[str, Any]  # of `[iteration]`


_TABLES = parse_toml((Path(__file__).parent / "job_files.toml").read_text(encoding="utf-8"), "job_files.toml")
_TITAN, _MEGATRON = _TABLES[TITAN], _TABLES[MEGATRON]
TITAN_ABSENT, MEGATRON_ABSENT = (tuple(Absent(*row) for row in one["absent"]) for one in (_TITAN, _MEGATRON))
SCHEDULES, RECOMPUTED, MODELLED = (_TITAN[name] for name in ("schedules", "recomputed", "modelled"))
NOT_MODELLED, NEUTRAL, VOCABULARIES, OF_MODELS, OF_TOKENS = (_MEGATRON[name] for name in (
    "not_modelled", "neutral", "vocabularies", "of_models", "of_tokens"))
CONTEXTS: Mapping[str, str] = _MEGATRON["contexts"]
BYTES: Mapping[str, int] = _MEGATRON["bytes"]
SHARDING: Mapping[str, int] = _MEGATRON["sharding"]
READ = (*(row.name for row in MEGATRON_ABSENT), *NOT_MODELLED, *_MEGATRON["read"], *OF_TOKENS)
"""Arguments of Megatron-LM that are read."""

HALF = "bfloat16"
_NUMBERS = {row.name: row.value for row in MEGATRON_ABSENT if row.value.isdecimal()}

CLOSE = 0.03
"""Between the parameters of a model and the number of its flavor."""


def read_job(path: str) -> TrainingJob:
    """The model and the plan of a file; WeftError: names what is missing, or not known."""
    text = read_input(path, "job file")
    return _titan(path, parse_toml(text, f"job file {path}")) if path.endswith(".toml") else _megatron(path, text)


def _titan(path: str, data: Mapping[str, Any]) -> TrainingJob:
    default = {(row.where, row.name): row.value for row in TITAN_ABSENT}

    def of(section: str, key: str, *others: str) -> Any:
        table = data.get(section)
        some = [table[name] for name in (key, *others) if name in table] if isinstance(table, dict) else []
        return some[0] if some else default.get((section, key))

    def whole(section: str, key: str, *others: str) -> int:
        value = str(of(section, key, *others))
        if not re.fullmatch(r"-1|\d{1,9}", value):
            raise WeftError(f"job file {path}: {key} of [{section}] is {told(value)}: an integer is expected")
        return int(value)

    model = _flavor(path, str(of("model", "name")), str(of("model", "flavor")))
    local, pp = whole("training", "local_batch_size", "batch_size"), whole("parallelism", "pipeline_parallel_degree")
    shard, copies = (whole("parallelism", f"data_parallel_{one}_degree") for one in ("shard", "replicate"))
    ep, tp = whole("parallelism", "expert_parallel_degree"), whole("parallelism", "tensor_parallel_degree")
    etp = whole("parallelism", "expert_tensor_parallel_degree") if ep > 1 else tp
    schedule = str(of("parallelism", "pipeline_parallel_schedule")).lower()
    if pp > 1 and schedule not in SCHEDULES:
        raise WeftError(f"job file {path}: schedule {told(schedule)} is not known: known are {', '.join(SCHEDULES)}")
    for section, key, accepted in ((section, *one) for section, keys in MODELLED.items() for one in keys.items()):
        if (value := of(section, key)) is not None and str(value) not in accepted:
            raise WeftError(f"job file {path}: {key} of [{section}] is {told(value)}: only {' and '.join(accepted)} "
                            f"{'is' if len(accepted) == 1 else 'are'} modelled")
    _check_spelling(path, data)
    mode, half = str(of("activation_checkpoint", "mode")), of("training", "dtype") == HALF
    mode += str(of("activation_checkpoint", "selective_ac_option")) if mode == "selective" else ""
    once = {"default": pp > 1, "always": False, "never": True}.get(str(of("parallelism", "fsdp_reshard_after_forward")))
    keys: dict[str, Any] = {
        "sequence": whole("training", "seq_len"), "tp": tp, "pp": pp,
        "cp": whole("parallelism", "context_parallel_degree"), "ep": ep, "etp": etp if model.experts else 1,
        "zero": 0 if shard == 1 else 2 if once else 3, "replicas": 1 if shard == 1 else copies,
        "micro_batch": whole("parallelism", "pipeline_parallel_microbatch_size") if pp > 1 else local,
        "recompute": RECOMPUTED.get(mode, mode),
        "gradient_bytes": 2 if half or of("training", "mixed_precision_reduce") == HALF else 4,
        "optimizer_bytes": 12 if not half else 4 if shard == 1 or once else 6,  # of FSDP with the shard of the weights
        "overlap_tp": str(of("parallelism", "enable_async_tensor_parallel")).lower() == "true",
        "precision": "fp8" if "float8" in str(of("model", "converters")) else "half", "stack": TITAN,
    }
    batch = whole("training", "global_batch_size")
    keys |= {"global_batch": None, "local_batch": local} if batch == -1 else {"global_batch": batch}
    if pp > 1:
        of_rank = SCHEDULES[schedule]
        each = of("parallelism", "pipeline_parallel_layers_per_stage")
        vp = 2 if each is None else -(-model.layers // (pp * max(int(each), 1)))
        keys |= {"schedule": of_rank, "vp": None if of_rank in ("1f1b", "gpipe") else vp}
    return TrainingJob(model, keys)


def _check_spelling(path: str, data: Mapping[str, Any]) -> None:
    """Refuse a section, or a key, that is nearly one that is read, as torchtitan refuses all that it does not know."""
    places = {row.where for row in TITAN_ABSENT} | {"model"}
    for section, table in data.items():
        known = {row.name for row in TITAN_ABSENT if row.where == section}
        for word, right in ((section, places), *((key, known) for key in (table if section in places else ()))):
            near = [] if word in right else get_close_matches(word.lower(), right, 1, 0.85)
            if near and abs(len(near[0]) - len(word)) < 2:
                raise WeftError(f"job file {path}: {told(word)} is unknown: did you mean {near[0]}?")


def _flavor(path: str, name: str, flavor: str) -> LanguageModel:
    """A model of torchtitan by name and flavor, "llama3" and "8B"; one of a name alone must have as many parameters."""
    plain = {re.sub(r"[-_.]", "", one.lower()): one for one in language_models()}
    base = "llama2" if name == "llama" else re.sub(r"[-_.]", "", name.lower())  # its name at first
    exact, alone = plain.get(base + re.sub(r"[-_.]", "", flavor.lower())), plain.get(base)
    billions = re.match(r"[\d.]+(?=B)", flavor)
    for called in (exact, alone):
        if called is not None:
            model = LanguageModel(name=called, **language_models()[called])
            if called == exact or (billions and abs(model.parameters / 1e9 / float(billions[0]) - 1) < CLOSE):
                return model
    raise WeftError(f"job file {path}: model {told(name)} of flavor {told(flavor)} is not known: give a config.json of "
                    f"Hugging Face instead; known are {', '.join(language_models())}")


_PLACES = r"[(\[](?:[\[\]()\d*-]| *[+,] *)+"  # "([0]*3 + [1]*58)", "(127, 0)"
_ARGUMENT = re.compile(rf"--([a-z][a-z0-9-]*)(?:[ =]+(?:[\"']?({_PLACES})|((?!--)[^\s\\\"'()]+)))?")
_SET = re.compile(
    r"^\s*(?:export\s+)?([A-Za-z_]\w*)=[\"']?(?:\$\{\w+:-[\"']?)?([\w.-]+)[\"']?\}?[\"']?\s*(?:#.*)?$",
    re.MULTILINE,
)


def _megatron(path: str, text: str) -> TrainingJob:
    plain = re.sub(r"(?m)(^|\s)#[^\n]*", " ", text)
    variables = dict(_SET.findall(plain))
    plain = re.sub(r"\$\{?(\w+)(?::-([\w.-]+))?\}?", lambda one: variables.get(one[1]) or one[2] or str(one[0]), plain)
    found = (_of_tests(path, text) if path.endswith((".yaml", ".yml"))
             else {name: (many or value).strip() for name, many, value in _ARGUMENT.findall(_taken(path, plain))})
    _check_modelled(path, found)
    default = {name: value for name, value in _NUMBERS.items() if value != "0"}

    def whole(key: str, otherwise: int | None = None) -> int:
        value = found.get(key, default.get(key, "" if otherwise is None else str(otherwise)))
        plain = value.isascii() and value.isdecimal() and len(value) < 10
        if not plain or (key in default and not int(value)):
            said = f"is {told(value)}" if key in found else "is not there"
            raise WeftError(f"job file {path}: --{key} {said}: Megatron-LM's arguments need it, as a plain "
                            f"integer{' from 1' if plain else ''}")
        return int(value)

    layers, hidden, heads = (whole(key) for key in ("num-layers", "hidden-size", "num-attention-heads"))
    integer(layers, f"job file {path}: --num-layers", 1, MOST_LAYERS)
    tp, pp = whole("tensor-model-parallel-size"), whole("pipeline-model-parallel-size")
    gated, mixture = not {"swiglu", "quick-geglu"}.isdisjoint(found), "num-experts" in found
    wide = whole("ffn-hidden-size", 8 * hidden // 3 // 64 * 64 if "swiglu" in found else 4 * hidden)
    sizes: dict[str, Any] = {
        "layers": layers, "hidden": hidden, "heads": heads, "feed_forward": wide, "gated": gated,
        "vocabulary": _padded(path, found, whole, tp),
        "sequence": whole("max-position-embeddings", whole("seq-length")),
        "kv_heads": whole("num-query-groups", heads) if "group-query-attention" in found else heads,
        "head_size": whole("kv-channels", hidden // max(heads, 1)),
        "tied": "untie-embeddings-and-output-weights" not in found, "biases": "disable-bias-linear" not in found,
        "positions": found.get("position-embedding-type", "learned_absolute") == "learned_absolute"
        and "use-rotary-position-embeddings" not in found,
    }
    if "window-size" in found:
        sizes["windows"] = _windows(path, found, layers)
    if mixture:
        width = whole("moe-ffn-hidden-size", wide)
        shared = whole("moe-shared-expert-intermediate-size", 0)
        if shared % max(width, 1):
            raise WeftError(f"job file {path}: --moe-shared-expert-intermediate-size {shared} is no multiple of the "
                            f"{width} of an expert, as which shared experts are counted")
        sizes |= {"experts": whole("num-experts"), "active": whole("moe-router-topk"), "expert_width": width,
                  "shared": shared // max(width, 1), "mixtures": _layers(path, found, "moe-layer-freq", layers, True)}
        if whole("moe-router-group-topk", 0) < whole("moe-router-num-groups", 0):
            sizes["nodes_per_token"] = whole("moe-router-group-topk", 0)
    if "multi-latent-attention" in found:
        rotary = whole("qk-pos-emb-head-dim")
        sizes |= {"q_rank": whole("q-lora-rank", 0), "kv_rank": whole("kv-lora-rank"), "rotary": rotary,
                  "head_size": whole("qk-head-dim") + rotary, "value_size": whole("v-head-dim")}
    if ahead := whole("mtp-num-layers", 0):  # as the last layer
        more = {name: (*(some[at % len(some)] for at in range(layers)), *[some[(layers - 1) % len(some)]] * ahead)
                for name in ("windows", "mixtures") if (some := sizes.get(name))}
        sizes |= more | {"layers": layers + ahead, "ahead": ahead}
    each, virtual = "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"
    vp = layers // (pp * max(whole(each), 1)) if each in found else whole(virtual) if virtual in found else None
    recompute = found.get("recompute-granularity", "selective" if "recompute-activations" in found else "none")
    overlaps = "overlap-grad-reduce" in found or "overlap-param-gather" in found
    keys = {
        "sequence": whole("seq-length"), **({"global_batch": whole("global-batch-size")} if "global-batch-size" in found
                                            else {"global_batch": None, "local_batch": whole("micro-batch-size")}),
        "micro_batch": whole("micro-batch-size"), "tp": tp, "pp": pp, "cp": whole("context-parallel-size"),
        "context": _context(path, found), "ep": whole("expert-model-parallel-size"), "zero": _zero(path, found),
        "etp": whole("expert-tensor-parallel-size", tp) if mixture else 1,
        "vp": vp, "recompute": recompute or "full", "sequence_parallel": "sequence-parallel" in found,
        "overlap": overlaps, "overlap_tp": "tp-comm-overlap" in found,
        "precision": "fp8" if {"fp8-format", "fp8-hybrid", "fp8-e4m3"} & set(found) else "half", "stack": MEGATRON,
        "gradient_bytes": 2 if "grad-reduce-in-bf16" in found or found.get("main-grads-dtype") == "bf16" else 4,
        "optimizer_bytes": _states(path, found),
        "attention": "unfused" if found.get("attention-backend") == "unfused" else None,
    }
    return TrainingJob(LanguageModel(name=Path(path).stem, source=path, **sizes), keys)


def _context(path: str, found: Mapping[str, str]) -> str:
    said = found.get("cp-comm-type", "p2p")
    if said not in CONTEXTS:
        raise WeftError(f"job file {path}: --cp-comm-type {said} is not modelled: {', '.join(CONTEXTS)} are")
    return CONTEXTS[said]


def _layers(path: str, found: Mapping[str, str], key: str, layers: int, first: bool) -> tuple[int, ...]:
    """Which layers are of a kind: one of every so many, the first of them or all but the last; or as a list has it.

    WeftError: neither a number nor a list of all layers, such as "([0]*3+[1]*58)".
    """
    text = found.get(key) or ("1" if first else str(layers + 1))
    try:
        made = _evaluated(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError, KeyError, AttributeError):
        made = 0
    if isinstance(made, int) and made > 0:
        return tuple(int((at % made == 0) if first else (at + 1) % made != 0) for at in range(layers))
    if not isinstance(made, list) or len(made) != layers or any(one not in (0, 1) for one in made):
        raise WeftError(f"job file {path}: --{key} {told(text)}: a number, or a list of 0 and 1 for each of the "
                        f"{layers} layers, is expected")
    return tuple(made)


def _evaluated(one: Any) -> Any:
    """A list of numbers that is written as sums and multiples of lists."""
    if isinstance(one, ast.Constant) and type(one.value) is int and one.value <= MOST_LAYERS:
        return one.value
    if isinstance(one, ast.List):
        return [_evaluated(item) for item in one.elts]
    made = {ast.Add: operator.add, ast.Mult: operator.mul}[type(one.op)](_evaluated(one.left), _evaluated(one.right))
    return made[: MOST_LAYERS + 1] if isinstance(made, list) else made


def _windows(path: str, found: Mapping[str, str], layers: int) -> tuple[int, ...]:
    """Tokens that those of each layer attend to: `--window-size` counts those before, and -1 is all of them."""
    said = found["window-size"]
    if not re.fullmatch(r"\(?(-1|\d{1,9}) *, *(-1|\d{1,9})\)?", said):
        raise WeftError(f"job file {path}: --window-size {told(said)}: two numbers, such as 128,0, are expected")
    window = int(said.strip("()").split(",")[0]) + 1
    return tuple(window * one for one in _layers(path, found, "window-attn-skip-freq", layers, False))


def _of_tests(path: str, text: str) -> dict[str, str]:
    """Arguments of a model_config.yaml of Megatron-LM's tests: MODEL_ARGS, with "true" for those without a value."""
    whole = parse_yaml(text, f"job file {path}").mapping(required=("MODEL_ARGS",))
    if "MODE" in whole and whole["MODE"].written() != "pretraining":
        raise whole["MODE"].refuse(f"{told(whole['MODE'].written())} is no training: only that is modelled")
    found = {}
    for name, entry in whole["MODEL_ARGS"].mapping(last=True).items():  # as of arguments that a command has twice
        value, name = entry.written(), name.removeprefix("--")
        if value is None and name in READ:
            raise entry.refuse("expected a single value")
        found[name] = re.sub(r"\$\{\w+:-([\w.-]+)\}", r"\1", "" if value in (None, "true") else value or "")
    return found


def _states(path: str, found: Mapping[str, str]) -> int:
    """Bytes of the optimizer a parameter."""
    if "use-precision-aware-optimizer" not in found:
        return 12
    total = 0
    for key in ("main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"):
        if (word := found.get(key, "fp32")) not in BYTES:
            raise WeftError(f"job file {path}: --{key} {told(word)} is not known: known are {', '.join(BYTES)}")
        total += BYTES[word]
    return total


def _zero(path: str, found: Mapping[str, str]) -> int:
    """The stage of ZeRO: of Megatron FSDP, of PyTorch's FSDP2, or of the distributed optimizer."""
    if "use-torch-fsdp2" in found:
        return 3
    if {"use-megatron-fsdp", "use-custom-fsdp"} & set(found):
        word = found.get("data-parallel-sharding-strategy", "optim_grads_params")
        if word not in SHARDING:
            raise WeftError(f"job file {path}: --data-parallel-sharding-strategy {told(word)} is not known: known are "
                            f"{', '.join(SHARDING)}")
        return SHARDING[word]
    return int("use-distributed-optimizer" in found)


def _check_modelled(path: str, found: Mapping[str, str]) -> None:
    """Refuse arguments that change the time and that no plan has, and those that are nearly one that is read."""
    if not {"num-layers", "hidden-size"} & set(found):
        raise WeftError(f"job file {path}: --num-layers is not there: it has no arguments of Megatron-LM")
    for name, instead in NOT_MODELLED.items():
        neutral = NEUTRAL.get(name, "0")
        if found.get(name, neutral) != neutral:
            raise WeftError(f"job file {path}: --{name} {found[name]}".rstrip() + " is not modelled: omit it"
                            + (f"; {instead}" if instead else ""))
    if found.get("recompute-method") == "block" or found.get("recompute-modules", "core_attn") != "core_attn":
        raise WeftError(f"job file {path}: only core_attn, or all of a layer, is recomputed here: omit "
                        "--recompute-method block and --recompute-modules")
    if not {"bf16", "fp16"} & set(found):
        raise WeftError(f"job file {path}: neither --bf16 nor --fp16 is there: Megatron-LM then trains in fp32, which "
                        "is not modelled")
    for name in found:
        near = [] if name in READ else get_close_matches(name, READ, 1, 0.9)
        if near and abs(len(near[0]) - len(name)) < 2:
            raise WeftError(f"job file {path}: --{name} is unknown: did you mean --{near[0]}?")


_TEST = re.compile(r"^\s*(if|elif)\s+(.*?)\s*(?:;\s*then\s*)?$")
_EQUAL = re.compile(r"\[\[?\s*[\"']?([^\s\"'$]*)[\"']?\s*(==?|!=)\s*[\"']?([^\s\"']*)[\"']?\s*\]\]?")


def _taken(path: str, text: str) -> str:
    """The lines of a script that run, as far as its tests are of variables that it sets itself.

    WeftError: an argument that is read stands behind another test.
    """
    states: list[list[bool | None]] = []  # of each `if` that is open: whether a branch was taken, whether this one is
    kept = []
    for line in text.splitlines():
        one_line = re.search(r";\s*fi\s*$", line) is not None  # a test, and what is behind it, in one line
        if not one_line and (test := _TEST.match(line)):
            found = _EQUAL.fullmatch(test[2])
            holds = None if found is None else (found[1] == found[3]) == (found[2] != "!=")
            if test[1] == "if":
                states.append([holds, holds])
            elif states:
                done = states[-1][0]
                states[-1] = [None if None in (done, holds) else done or holds, False if done else holds]
        elif re.match(r"^\s*else\b", line) and states:
            done = states[-1][0]
            states[-1] = [True, None if done is None else not done]
        elif re.match(r"^\s*fi\b", line) and states:
            states.pop()
        elif all(state[1] is not False for state in states):
            unknown = one_line or any(state[1] is None for state in states)
            read = [name for name, _, _ in _ARGUMENT.findall(line) if name in READ and name not in OF_TOKENS]
            if unknown and read:
                raise WeftError(f"job file {path}: --{read[0]} stands behind a test that is not known here: write the "
                                "arguments without it")
            kept.append(line)
    return "\n".join(kept)


def _padded(path: str, found: Mapping[str, str], whole: Callable[..., int], tp: int) -> int:
    """Tokens of the embedding, of which each tensor rank has as many."""
    tokens = VOCABULARIES.get(found.get("tokenizer-type", "GPT2BPETokenizer" if "merge-file" in found else ""))
    named = found.get("tokenizer-model", "").rstrip("/").rsplit("/", 1)[-1]
    tokens = tokens or next((n for name, n in OF_MODELS.items() if re.search(name, named, re.IGNORECASE)), None)
    if tokens is None and not {"vocab-size", "padded-vocab-size"} & set(found):
        raise WeftError(f"job file {path}: --vocab-size is not there, and the tokenizer's is not known: add it; known "
                        f"are {', '.join(VOCABULARIES)}, and models of --tokenizer-model: {', '.join(OF_MODELS)}")
    if "padded-vocab-size" in found:
        return whole("padded-vocab-size")
    multiple = whole("make-vocab-size-divisible-by") * tp
    return -(-whole("vocab-size", tokens) // multiple) * multiple
