"""The texts that tokenizers are compared on; written for this purpose, deterministic.

Imported by tokenizer.py. texts() gives about 100 KB: every script and kind of character that
pre-tokenizers tell apart, and seeded mixes of all of it.
"""

import random

# One short text a script: greetings, everyday words, numerals of the script.
SCRIPTS = [
    "The quick brown fox isn't lazy; it's resting. They'll see we've won, I'd say you're right, I'm sure.",
    "IT'S WHAT THEY'LL SAY WE'VE DONE, I'D BET YOU'RE I'M 'Tis 'twas o'clock rock 'n' roll '90s ''' 's",
    "Größe, Übermut, Straße; naïve café déjà-vu, señor, façade, Ærø, Łódź, İstanbul, ĳs, ŉ, ǅ, ﬁnd ſet",
    "e\u0301te\u0301 A\u030angstro\u0308m n\u0303 o\u0302\u0323 Vie\u0323\u0302t Nam C\u0327a \u1100\u1161\u11a8 \u0958\u0915\u093c",
    "Привет, как дела? Съешь ещё этих мягких французских булок. ЁЖИК ѣ Ԁ Ԫ",
    "Γειά σου Κόσμε! Ωμέγα άλφα ᾳ ᾼ ῶ ϗ Ϸ ὅτι μῆνιν ἄειδε θεά",
    "Բարև աշխարհ։ გამარჯობა მსოფლიო! ᲒᲐᲛᲐᲠᲯᲝᲑᲐ Ⴀ ⴀ",
    "שלום עולם! מה שלומך? בְּרֵאשִׁית ״כך״ ׳א׳",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣٤٥٦٧٨٩٠ ۱۲۳ بِسْمِ ٱللَّٰهِ پرسش گ چ",
    "नमस्ते दुनिया! आप कैसे हैं? १२३४५ क्षत्रिय ज्ञान ॐ।",
    "ওহে বিশ্ব ১২৩ ਸਤ ਸ੍ਰੀ ਅਕਾਲ ੧੨ કેમ છો ૧૨ ନମସ୍କାର ୧୨ வணக்கம் ௧௨௩ నమస్కారం ౧౨ ನಮಸ್ಕಾರ ೧೨ നമസ്കാരം ൧൨ ආයුබෝවන්",
    "สวัสดีชาวโลก ๑๒๓ ກ ສະບາຍດີ ໑໒ မင်္ဂလာပါ ၁၂၃ កាន់តែពិសេស ១២៣ བཀྲ་ཤིས་བདེ་ལེགས། ༡༢",
    "ሰላም ልዑል ፩፪፫ ᐊᓐᓄᕌᖅ ᏣᎳᎩ ꮳꮃꭹ ᠮᠣᠩᠭᠣᠯ ᠑᠒ ⵜⵉⴼⵉⵏⴰⵖ ߒߞߏ ߁߂",
    "你好，世界！我想在１２３４年买３个苹果。一二三〇，龥龦鿿㐀𠀀𪚥",
    "こんにちは世界。カタカナ・ひらがなー、ｶﾀｶﾅ「漢字」々〆ヶ　全角　スペース。",
    "안녕하세요 세계! 반갑습니다 ㄱㄴㄷ 힣ퟰ 각 ",
    "繁體中文：測試，ㄅㄆㄇ；「引號」『書名』……——～！＠＃￥％",
    "𝐁𝐨𝐥𝐝 𝕬 𝟘𝟙 𝒳 𐌰𐌱 𐍈 𒀀 𓀀 𐐀𐐨 𞤀𞤢 𑢠 𐒰 ⅠⅡⅣ ⅷ ½⅓¾ ²³¹ ₁₂ ①② ㊀ ⒜",
]

SYMBOLS = [
    "🚀 😀😁 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇯🇵 ❤️ ✅✔︎ 😶‍🌫️ 🫠🦙🦙 #️⃣ 1️⃣ ☎️",
    "€ $ £ ¥ ₹ ₿ ¢ % ‰ © ® ™ § ¶ † ‡ • ° ± × ÷ ≠ ≤ ≥ ∞ ∑ ∫ √ ∂ ∈ ⊂ → ⇒ ↦ ■ ▲ ★ ♠ ♫",
    "“quotes” ‘single’ «guillemets» „low“ ‹a› – — … ‐ ‑ ′ ″ ¿qué? ¡olé! @user #tag a/b a\\b",
    "!!! ... ??? --- === *** ### ~~~ ``` ''' \"\"\" ((( ))) [[[ ]]] {{{ }}} <<< >>> ||| &&& ^^^ $$$ +++",
    "a+b=c a<b>c a^b a|b a~b a`b $5 +1 <=> ^_^ |x| `code` ~/.bashrc C++ F# .NET x=y; p->q; a&&b||!c",
    "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad \u202aRTL\u202c \ufe0f \u034f \ufffd \ue000 \u2028 \u2029 \u0378 \U000e0041",
]

NUMBERS = [
    "0 1 12 123 1234 12345 123456 1234567 12345678 3.14159 -273.15 1,000,000 1_000 6.02e23 0xDEADBEEF",
    "2026-11-29T22:05:44Z 192.168.0.1 v1.2.3-rc4 +49 (0)30 1234567 50% 1/2 3x4 1st 2nd 10km H2O a1b22c333d4444",
    "1١۱१১੧૧୧௧౧೧൧๑໑༡၁១᠑１𝟏 ¹²³ ½¼ ⅞ ⅣⅤ 〇一二 ①②③ 9999999999999999999",
    " 1 22 333 4444 55555 666666  7  88  999   1000    20000",
]

SPACES = [
    " ", "  ", "   ", "    ", " a", "  a", "   a", "a ", "a  ", "a   ", "a b", "a  b", "a   b", "a    b",
    "\n", "\n\n", "\n\n\n", "\n ", " \n", "  \n  ", "\na", "a\n", "a\nb", "a\n\nb", "a \n b", "a\n \nb", "a  \n\n  b",
    "\r\n", "\r\n\r\n", "a\r\nb", "a\r\n\r\nb", "\r", "a\rb", "\n\r\n\r", "\t", "\t\t", "\ta", "a\tb", " \ta", "\t a", "\t\n\ta",
    "a\u00a0b", "a\u00a0\u00a0b", "\u00a0a", "a\u3000b", "\u3000a", "a\u2003b\u2009c\u200ad", "a\u2028b\u2029c", "a\u0085b",
    "a\x0bb\x0cc", "a\x1cb\x1dc\x1ed\x1fe", " \u00a0 a", "\n\u00a0\n", "\u3000\n\u3000b", "a \u3000 b", "! \u3000，", "，\u3000。",
    " " * 7 + "x", " " * 16, " " * 17 + "x", " " * 40, "\n" * 9, "\n" * 33, "\t" * 12 + "y", " \n" * 8, "\n " * 8 + "z",
    "end of line   \nnext", "  two\n    four\n        eight\n", "x\n\n\n\n    y", "-  - \n-", "a.  B", "a.\n\nB", ")\n\n(", ";\r\n}",
]

CONTROLS = ["".join(map(chr, range(32))), "a\0b", "\x01\x02\x03\x04\x05\x06\x07", "-\x04-", "\x7f", "\x1b[31mred\x1b[0m", "\x80\x81\x9f", "\x16\x17 x\x14"]

CODE = [
    "fn main() {\n    let xs: Vec<u32> = (0..10).map(|x| x * 2).collect();\n    println!(\"{xs:?}\");\n}\n",
    "def f(a, b=None, *args, **kw):\n\t\"\"\"Doc.\"\"\"\n\tif a is not b:\n\t\treturn {k: v for k, v in kw.items()}\n\treturn f'{a!r:>10}'\n",
    "#include <stdio.h>\nint main(void) { for (int i = 0; i < 10; ++i) printf(\"%d\\n\", i); return 0; }\r\n",
    "<!DOCTYPE html>\n<div class=\"a b\" id='x'>\n  <p>Text &amp; more</p><br/>\n</div>\n<table><tr><td>1</td></tr></table>\n",
    "SELECT a.id, COUNT(*) FROM t AS a LEFT JOIN u ON a.id = u.t_id WHERE a.x >= 10 AND u.y IS NULL GROUP BY 1;",
    "{\"key\": [1, 2.5, true, null], \"nested\": {\"a\": \"b\\u00e9\"}}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```rust\nlet x = 1;\n```\n\n- [ ] todo\n- [x] done\n\n$$\\int_0^1 x^2 dx = \\frac{1}{3}$$",
    "camelCase snake_case SCREAMING_CASE kebab-case PascalCase __dunder__ HTTPServer iOS15 getElementById",
    "https://example.org/a/b?x=1&y=%20z#frag mailto:a.b+c@d-e.fg C:\\Program Files\\x.txt ../../etc/passwd",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n context\n",
]

# Text that looks like special tokens of the families.
LOOKALIKES = [
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<|im_end",
    "<s>", "</s>", "<s>hello</s>", "<s> hello </s> world", "<unk>", "<pad>", "<bos>x<eos>", "<mask>", "<0x0A>", "<0xFF>", "▁", "▁a ▁▁b", "a▁b",
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nx<|eot_id|>", "<|reserved_special_token_7|>",
    "<start_of_turn>user\nhi<end_of_turn>\n", "<unused7>", "[multimodal]", "<|user|>\nhi<|end|>\n<|assistant|>\n", "<|user|>   x", "[INST] a [/INST]",
    "<fim_prefix>a<fim_suffix>b<fim_middle>", "<|fim_prefix|>a<|fim_suffix|>", "<｜begin▁of▁sentence｜>x<｜end▁of▁sentence｜>", "<｜User｜>x",
    ">>TITLE<< x >>ABSTRACT<<", "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>x<|END_OF_TURN_TOKEN|>", "[PAD151646]", "<|", "|>", "<<|im_end|>>",
    "<tool_call>\n{}\n</tool_call>", "<repo_name>x<file_sep>y", "õ ÷ ö ü ÿ Á ÀÁ þ", "ö", "aöb", "<|im_end|><|im_end|>", "<h1>T</h1> <strong>x</strong> <td> </td>",
    "hello<s> world", "hello<s>world", "hello<s>  world", "x</s> y </s>z", "<s>G", "<s> G",
]


def mixes(rng, count):
    """Seeded random texts: pieces of all the above, and random characters of every plane."""
    pool = [w for t in SCRIPTS + SYMBOLS + NUMBERS + CODE for w in t.split(" ")] + SPACES + CONTROLS + LOOKALIKES
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x250, 0x600), (0x600, 0x1000), (0x1000, 0x2000), (0x2000, 0x2C00), (0x2C00, 0x3100),
              (0x3100, 0xA000), (0xA000, 0xD7A4), (0xF900, 0xFFFE), (0x10000, 0x11000), (0x1D400, 0x1D800), (0x1F300, 0x1FB00), (0x20000, 0x20100)]
    out = []
    for i in range(count):
        if i % 3 == 0:
            first, last = rng.choice(blocks)
            text = "".join(rng.choice([chr(rng.randrange(first, last)), chr(rng.randrange(first, last)), " ", "a", "7", "\n", "."])
                           for _ in range(rng.randrange(4, 60)))
        else:
            text = "".join(rng.choice(pool) + rng.choice(["", "", " ", " ", "  ", "\n"]) for _ in range(rng.randrange(3, 25)))
        out.append(text)
    return out


PROSE = (
    "When the ferry came in, nobody was waiting at the pier except a boy with a bicycle and two gulls. "
    "\"You're late,\" he said, and I couldn't argue: it was 7:45, the letter had said 6:30, and the café's lights were already out. "
    "We walked up the hill (about 350 m, he claimed — it felt like 2,000) while the rain, which hadn't stopped since Tuesday, ran down our collars.\n\n"
    "Der alte Leuchtturm stand noch, trotz allem; die Tür war grün gestrichen. «Entrez donc», dit une voix, et nous entrâmes. "
    "Внутри пахло кофе и солью. 窗外的海很暗，远处有一点灯光。「もう遅いですね」と彼女は言った。\n"
)


def texts():
    rng = random.Random(20261129)
    lines = [line for t in SCRIPTS for line in (t, " " + t)] + SYMBOLS + NUMBERS + SPACES + CONTROLS + CODE + LOOKALIKES
    out = [""] + lines + [PROSE] + ["\n".join(CODE)] + mixes(rng, 330)
    size = sum(len(t.encode()) for t in out)
    while size < 100_000:
        more = " ".join(rng.sample(PROSE.split(" "), 30)) + rng.choice(["\n", "\n\n", ". "]) + rng.choice(CODE)
        out.append(more)
        size += len(more.encode())
    return out


if __name__ == "__main__":
    all_texts = texts()
    print(len(all_texts), "texts,", sum(len(t.encode()) for t in all_texts), "bytes")
