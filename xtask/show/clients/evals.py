"""lm-eval with a task in a local file: log-likelihoods through echo, and our own perplexity beside them."""
import json
import math
import os
import re
import subprocess
from pathlib import Path

import httpx

from . import SMOL

PROSE = Path(__file__).resolve().parents[1] / "texts" / "prose.txt"
N_CTX, FIRST = 512, 257  # perplexity judges the tokens after the first half and one
QUESTIONS = [("The capital of France is", ["Paris", "a banana"]), ("Water freezes into", ["ice", "a king"]),
             ("Two plus two is", ["four", "purple"]), ("The sun rises in the", ["east", "pocket"])]
CHOICE = """task: local_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
target_delimiter: " "
metric_list: [{{metric: acc}}]
"""
GENERATE = """task: local_generate
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{until: ["\\n", "."], max_gen_toks: 6, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def checks(url, direct, model, scratch):
    os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TQDM_DISABLE="1", HF_HOME=str(scratch / "hf"))
    import logging
    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    from lm_eval.tasks import TaskManager
    logging.disable(logging.WARNING)

    def harness(**more):
        return LocalCompletionsAPI(base_url=f"{url}/v1/completions", model=SMOL, max_length=2048, **more)

    def tokens(text):
        return httpx.post(f"{direct}/tokenize", json={"model": SMOL, "content": text}).json()["tokens"]

    def evaluate(task, text):
        folder = scratch / task
        folder.mkdir()
        data = folder / "data.jsonl"
        data.write_text("".join(json.dumps({"question": q, "choices": c}) + "\n" for q, c in QUESTIONS))
        (folder / f"{task}.yaml").write_text(text.format(file=data))
        return lm_eval.simple_evaluate(model=harness(), tasks=[task], bootstrap_iters=0, log_samples=True,
                                       task_manager=TaskManager(include_path=str(folder), include_defaults=False))

    def tokenizer():
        """the harness finds the server's own tokenizer: no model hub is asked"""
        lm = harness()
        assert lm.tokenizer_backend == "remote", lm.tokenizer_backend
        text = "The river runs to the sea.\n"
        assert lm.tok_encode(text) == tokens(text) and lm.decode_batch([lm.tok_encode(text)]) == [text]

    def choice():
        """multiple choice (loglikelihood): the obvious answers win"""
        got = evaluate("local_choice", CHOICE)["results"]["local_choice"]
        assert got["acc,none"] == 1.0, got

    def generate():
        """generate_until: every question gets a text that ends before the stops"""
        got = evaluate("local_generate", GENERATE)
        texts = [s["resps"][0][0] for s in got["samples"]["local_generate"]]
        assert len(texts) == len(QUESTIONS) and any(texts) and not any("." in t or "\n" in t for t in texts), texts

    def perplexity():
        """loglikelihood through echo agrees with `minfer perplexity` on the same tokens to 1e-6"""
        text, context, rest = halves(PROSE.read_text(encoding="utf-8"), tokens)
        file = scratch / "text.txt"
        file.write_text(text, encoding="utf-8")
        out = subprocess.run([os.environ["MINFER"], "perplexity", str(model), "-f", str(file), "-c", str(N_CTX), "--chunks", "1", "--json"],
                             check=True, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL).stdout
        ours = json.loads(out)["model"]
        request = Instance(request_type="loglikelihood", doc={}, arguments=(context, rest), idx=0)
        [(loglikelihood, greedy)] = harness().loglikelihood([request])
        n = N_CTX - FIRST
        assert ours["tokens"] == n and not greedy
        theirs = math.exp(-loglikelihood / n)
        assert abs(theirs / ours["perplexity"] - 1) < 1e-6, (theirs, ours)

    return [tokenizer, choice, generate, perplexity]


def halves(prose, tokens):
    """A text of N_CTX tokens, cut after FIRST of them where both parts tokenize alone as they do together."""
    for start in (m.start() for m in re.finditer(r"\b", prose)):
        ids, end = tokens(prose[start:]), len(prose)
        if len(ids) < N_CTX:
            break
        for end in (m.start() for m in re.finditer(r"(?=\s)", prose)):
            if end > start + 1200 and len(tokens(prose[start:end])) == N_CTX:
                for seam in (m.start() for m in re.finditer(r"(?=\s)", prose)):
                    if start + 500 < seam < end and len(tokens(prose[start:seam])) == FIRST:
                        both = tokens(prose[start:seam]) + tokens(prose[seam:end])
                        if both == tokens(prose[start:end]):
                            return prose[start:end], prose[start:seam], prose[seam:end]
    raise AssertionError("no such cut")
