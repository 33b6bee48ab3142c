"""Texts that the tokenizers are trained on and tried with, all of them written for this purpose."""

import random

SENTENCES = {
    "english": [
        "The ferry leaves at seven, and whoever isn't on the pier by then will have to wait until noon.",
        "She'd planted beans along the fence; they've grown past the window and we're still picking them.",
        "I'll say it once more: you don't need a bigger hammer, you need to look at the nail first.",
        "A quiet engine, a full tank, and the whole road to ourselves -- that's how the summer began.",
        "Don't forget the keys, DON'T FORGET THE KEYS, he'd written on the door in three different colours.",
        "When the lights came back, the kitchen clock was blinking 12:00 and nobody knew what time it was.",
        "It's the neighbour's dog's favourite tree, and the children's, and mine too.",
        "Water boils sooner in the mountains, so the potatoes take longer; nobody believes it until they cook there.",
    ],
    "german": [
        "Der Zug nach Süden fährt heute über die Brücke, weil der Tunnel gesperrt ist.",
        "Straßenbahnhaltestellenschilder müssen größer geschrieben werden, meinte die Überprüfungskommission.",
        "Wer früh aufsteht, hört die Vögel; wer spät aufsteht, hört die Nachbarn.",
    ],
    "french": [
        "L'été dernier, nous avons traversé la forêt à vélo jusqu'à la mer, où l'eau était glacée.",
        "Où est passé le garçon qui vendait des pêches près de l'église ? Ça, personne ne le sait.",
    ],
    "spanish": ["¿Quién ha dejado la ventana abierta? El niño señaló al gato, y el gato miró hacia otro lado."],
    "polish": ["Żółta łódź płynęła powoli wzdłuż brzegu, a dzieci biegły za nią krzycząc coś wesoło."],
    "turkish": ["Işıklar sönünce İstanbul'un sesi değişti; şimdi yalnızca yağmur duyuluyordu."],
    "vietnamese": ["Buổi sáng trời mưa, chúng tôi ngồi uống cà phê và nghe tiếng xe chạy qua cửa sổ."],
    "russian": [
        "Старый мост давно закрыт, но рыбаки всё равно приходят сюда каждое утро.",
        "Когда дождь кончился, во дворе запахло мокрой травой и свежим хлебом.",
        "Ёлка стояла в углу до самой весны, и никому не хотелось её убирать.",
    ],
    "greek": ["Το καράβι έφυγε πριν ξημερώσει, κι εμείς μείναμε στο λιμάνι με δυο βαλίτσες."],
    "hebrew": ["הרכבת האחרונה יצאה מהתחנה, ואנחנו נשארנו על הרציף עם שתי מזוודות.", "שָׁלוֹם לְכֻלָּם"],
    "arabic": ["وصلنا إلى القرية بعد المغرب، وكانت المصابيح مضاءة في كل البيوت.", "كِتَابٌ جَدِيدٌ"],
    "persian": ["باران که می‌بارد، کوچه‌ها بوی خاک می‌دهند."],
    "hindi": ["बारिश के बाद गली में बच्चे काग़ज़ की नावें चलाने लगे।", "क्षेत्र में पानी कम है।"],
    "tamil": ["மழை நின்ற பிறகு தெருவில் குழந்தைகள் விளையாடினார்கள்."],
    "thai": ["เช้านี้ฝนตกหนัก เราจึงนั่งอยู่ในบ้านและฟังเสียงน้ำไหล"],
    "chinese": [
        "昨天晚上下了一场大雨，今天早上院子里到处都是落叶。",
        "他把钥匙忘在了桌子上，只好坐在门口等邻居回来。",
        "我们坐火车去南方，路上看见了很多稻田和小河。",
        "這家店的老闆說，明年春天他要把店搬到對面去。",
    ],
    "japanese": [
        "駅前の小さなパン屋は、朝の六時から店を開けている。",
        "雨がやんだら、みんなで川まで歩いていこう。コーヒーも忘れずに。",
        "カタカナとひらがなと漢字が混ざった文章です。",
    ],
    "korean": ["기차가 늦게 와서 우리는 역에서 한 시간을 기다렸다.", "창문을 열자 바다 냄새가 방 안으로 들어왔다."],
    "georgian": ["დილით ზღვაზე ნისლი იდგა და ნავები არ ჩანდა."],
    "amharic": ["ዛሬ ጠዋት ዝናብ ነበር።"],
    "khmer": ["ភ្លៀងធ្លាក់ពេញមួយយប់"],
}

CODE = [
    "def area(width: float, height: float = 1.0) -> float:\n    \"\"\"Of a rectangle.\"\"\"\n    return width * height\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += values[i] * 0x1F;\n\tif (sum >= 1e9) break;  // enough\n}\n",
    "SELECT name, count(*) AS visits FROM guests WHERE arrived >= '2024-01-31' GROUP BY name;\n",
    "<div class=\"note\">\r\n  <p>Hello &amp; goodbye</p>\r\n</div>\r\n",
    "{\"id\": 17, \"tags\": [\"a\", \"b\"], \"nested\": {\"ok\": true, \"none\": null}}",
    "fn main() {\n        let path = r\"C:\\Temp\\x\";\n        println!(\"{path:?}\");\n}\n\n\n",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org /usr/local/lib ../../x",
    "if(a&&b||!c)x=>x*2;y->z;p!=q;#include<stdio.h>//done",
    "getHTTPResponseCode XMLHttpRequest camelCase snake_case kebab-case SCREAMING_CASE iPhone15Pro",
]

NUMBERS = [
    "0 1 12 123 1234 12345 123456 1234567890",
    "3.14159 -2.5e-10 1,000,000 1_000_000 99.9% $12.50 €7 ½ ² ³ ⅷ Ⅻ",
    "٠١٢٣٤٥٦٧٨٩ ०१२३ ๑๒๓ 一二三 １２３ 𝟘𝟙𝟚",
    "2024-02-29T23:59:59Z +49 (0)30 1234567",
]

WHITE_SPACE = [
    "",
    " ",
    "  ",
    "   a",
    "a   ",
    "a  b   c    d     e",
    "\n",
    "\n\n\n",
    " \n \n ",
    "\r\n\r\n",
    "\t\t\tx\t",
    "a \n b\n\n  c \t\n",
    " " * 40 + "end" + " " * 70,
    "nbsp\u00a0thin\u2009ideographic\u3000ogham\u1680line\u2028paragraph\u2029next\u0085end",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeffmark\u2060word",
    "x\n\n \n\ty",
    "\u3000\u3000全角\u3000空白",
]

EMOJI = [
    "👍 👍🏽 ❤️ ☎︎ 🇩🇪🇫🇷 1️⃣",
    "👨‍👩‍👧‍👦 👩🏾‍🚀 🏳️‍🌈 🧑‍🤝‍🧑 ❤️‍🔥",
    "so tired 😴😴😴!!! but happy 🎉🎉",
    "🫠🪿🩷 ⛄️⚡",
]

COMBINING = [
    "e\u0301 é a\u0308\u0323 \u0323a\u0308 ế ệ ǟ",
    "Z\u0351\u036b\u0343a\u0363\u0363l\u0348\u0353g\u0321o\u032a",
    "\u0301start \u0308\u0301",
    "가 각 ᄀ\u1161 ᄀ\u1161\u11a8 \u1100 \u11a8",
    "ﬁ ﬀ ① ㎏ ﾊﾟ ｶﾞ Å Å Ω ℃ ™ ½",
    "क\u093c ड\u093c \u0958 ம\u0bc6\u0bbe",
    "\u0130 \u0131 ſ ß ẞ Σας ΑΣ ǅ İstanbul",
    "'ſ 'S don'T WE'LL i'M 'ſomething",
    "𝒜𝓫𝕔 𐐷𐐏 𞤀𞤢 \U00011f04 \U0002ebf0 \u1c89 \U00010d50 \U000113c2",
    "\U00016d63\U00016d67 \U00016d69\U00016d67 \U0001d15e \u0344 \u0f73",
]

CONTROL = [
    "\x00\x01\x02\x1f\x7f\x80\x9f",
    "bell\x07 back\x08 form\x0c vert\x0b esc\x1b[31mred\x1b[0m",
    "\ue000\uf8ff\U000f0000 private \ufffd\ufffe\uffff \U0010ffff",
    "\u202eoverride\u202c \u2066isolate\u2069 \u200f",
    "\u0378\u0530 unassigned \U000e0041\U000e0042 tags",
]

PUNCTUATION = [
    "...!!!???,,,;;; --- === *** ### @@@ $$$ %%% ^^^ &&& (( )) [[ ]] {{ }} << >> // \\\\ || ~~ ``",
    "“quoted” ‘single’ «guillemets» „low“ — dash – en … ellipsis · dot • bullet",
    "「鉤括弧」『二重』【隅付き】、。！？；：（全角）",
    "!?\n!?\r\n.;/\n//\n",
    "a.b,c;d:e!f?g'h\"i-j_k/l\\m|n",
    "\u2e5d \u00a7 \u00b6 \u10fb \U00011944 \U00016fe2 \u2e52 \u061d",
]

# Whatever the file calls it, in plain text and in odd places.
MARKERS = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nHello<|im_end|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<s>[INST] Hi [/INST] Hello</s><unk><0x41><0x0A>",
    "<｜begin▁of▁sentence｜><｜User｜>你好<｜Assistant｜><think>",
    "<|start|>assistant<|channel|>final<|message|>ok<|return|>",
    "<|im_start|<|im_start|>|> <|im_start <|endoftext|>x<|endoftext|>",
    "a<tool_call>b</tool_call>c <tool_call>  d  </tool_call>",
    "<s> <s>  </s> x</s>▁y ▁ ▁▁ _",
    "|||IP_ADDRESS||| |||EMAIL_ADDRESS|||",
    "Ġhello Ċ âĢĻ Ã©",
]

BROKEN = [
    b"\xff",
    b"caf\xe9 au lait",
    b"half \xe2\x82",
    b"\xf0\x9f\x98 cut \xf0\x9f",
    b"overlong \xc0\xaf \xe0\x80\xaf",
    b"surrogate \xed\xa0\x80 pair",
    b"\x80\xbf\xfe lone \xf8\x88\x80\x80\x80",
    b"beyond \xf4\x90\x80\x80 ok",
    "日本".encode()[:-1] + b" \xe6\x97 " + "語".encode(),
]


def long_words() -> list[str]:
    rng = random.Random(7)
    return [
        "a" * 700,
        "ab" * 300,
        "\u4e2d" * 200,
        "".join(rng.choice("abcdefghij") for _ in range(600)),
        "".join(rng.choice("天地玄黄宇宙洪荒日月盈昃") for _ in range(150)),
        "=" * 300,
        "\n" * 200,
        "😀" * 80,
        "Donaudampfschifffahrtsgesellschaftskapitän" * 8,
        "9" * 250,
    ]


def sentences() -> list[str]:
    return [sentence for language in SENTENCES.values() for sentence in language]


def shuffled(count: int, seed: int) -> list[str]:
    """Words of all languages, code and numbers in random order and spacing."""
    rng = random.Random(seed)
    words = [word for text in sentences() + CODE + NUMBERS + EMOJI for word in text.split()]
    spaces = [" "] * 12 + ["", "  ", "\n", "\n\n", "\t", ", ", ". ", "-", "/", "\u00a0"]
    lines = []
    for _ in range(count):
        picked = [rng.choice(words) + rng.choice(spaces) for _ in range(rng.randint(3, 25))]
        lines.append("".join(picked))
    return lines


def training() -> list[str]:
    return sentences() * 3 + CODE * 3 + NUMBERS + EMOJI + PUNCTUATION + COMBINING + shuffled(300, seed=1)


def cases() -> list[bytes]:
    texts = (
        sentences() + CODE + NUMBERS + WHITE_SPACE + EMOJI + COMBINING + CONTROL + PUNCTUATION + MARKERS
        + long_words() + shuffled(30, seed=2)
    )
    return [text.encode() for text in texts] + BROKEN
