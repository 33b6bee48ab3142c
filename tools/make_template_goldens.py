#!/usr/bin/env python3
"""Makes the goldens of chat templates: what jinja2 under transformers' environment gives.

    python tools/make_template_goldens.py            # writes tests/templates/goldens
    python tools/make_template_goldens.py --check    # nothing is written; exit 1 if something differs

Needs tools/goldens-requirements.txt in a virtual environment. tests/templates/README.md describes the result.
"""

import argparse
import json
import os
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

from template_goldens import conversations, differences, expressions, findings, numbers, oracle, statements

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "templates"
# Printed addresses differ from run to run, and so does what is drawn by lot.
NOT_FIXED = (" at 0x",)


def _lines(module) -> dict:
    """{"variables": ..., "cases": [...]}: templates that share their variables."""
    made = []
    apart = {template for template, _ in differences.DIFFERENCES} if module is not differences else set()
    for group, template, variables in module.cases():
        if template in apart:
            continue
        case = {"group": group, "template": template, **oracle.render(template, variables)}
        if not any(mark in case.get("text", "") + template for mark in NOT_FIXED):
            made.append(case)
    return {"variables": variables, "cases": made}


def _shapes() -> dict:
    made = []
    for shape, (strings, keeps_null, forms) in conversations.SHAPES.items():
        template = (FOLDER / "shapes" / f"{shape}.jinja").read_text(encoding="utf-8")
        for name, messages in conversations.CONVERSATIONS.items():
            for number, (arguments, tools, prompt) in enumerate(conversations.SETTINGS):
                variables = {
                    **conversations.SPECIAL_TOKENS,
                    **arguments,
                    "messages": oracle.prepare(messages, strings, keeps_null, forms),
                    "tools": tools,
                    "documents": None,
                    "add_generation_prompt": prompt,
                }
                made.append({"shape": shape, "conversation": name, "setting": number, **oracle.render(template, variables)})
    settings = [
        {"arguments": arguments, "tools": tools, "add_generation_prompt": prompt}
        for arguments, tools, prompt in conversations.SETTINGS
    ]
    return {
        "special_tokens": conversations.SPECIAL_TOKENS,
        "conversations": conversations.CONVERSATIONS,
        "settings": settings,
        "shapes": {
            name: {"wants_argument_strings": strings, "wants_null_content": null, "content": forms}
            for name, (strings, null, forms) in conversations.SHAPES.items()
        },
        "cases": made,
    }


def _text(golden: dict) -> str:
    """JSON with a case a line, so that a change shows as one."""
    head = {key: value for key, value in golden.items() if key != "cases"}
    lines = [json.dumps(case, ensure_ascii=False) for case in golden["cases"]]
    top = json.dumps(head, ensure_ascii=False)
    return top[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    goldens = {
        "expressions": _lines(expressions),
        "statements": _lines(statements),
        "findings": _lines(findings),
        "numbers": _lines(numbers),
        "differences": _lines(differences),
        "shapes": _shapes(),
    }
    same = True
    for name, golden in goldens.items():
        path = FOLDER / "goldens" / f"{name}.json"
        text = _text(golden)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{name}: DIFFERS")
            same = False
        print(f"{name}: {len(golden['cases'])} cases")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
