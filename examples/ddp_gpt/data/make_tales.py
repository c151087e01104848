"""Writes tales.txt: short made-up tales from a small grammar, the same each time.

python make_tales.py > tales.txt
"""

import random

NAMES = "Ada Bruno Cleo Dario Edda Falk Greta Hanno Ines Jorin Kaya Levin Mira Nilo Orla Pavel".split()
TRADES = "miller weaver ferryman beekeeper glazier smith baker mapmaker shepherd lamplighter".split()
PLACES = "the river town|the high village|a house by the mill|the old harbour|the salt road|a hill of pines".split("|")
THINGS = "a copper lantern|a blue kettle|a letter without a seal|a wooden clock|a sack of barley|a broken bell".split("|")
WEATHER = "rain|thick fog|a dry wind|the first snow|a red morning|thunder".split("|")
VERBS = "carried|mended|lost|found|hid|sold|counted|painted".split("|")
FEELINGS = "glad|afraid|tired|curious|proud|silent".split("|")
ENDS = [
    "From that day on nobody in {place} spoke of {thing} again.",
    "And so {name} learned that {weather} forgives no one who hurries.",
    '"Keep it," said {other}, "for it was never mine."',
    "When spring came, {name} went back to {place} and stayed.",
]
MIDDLES = [
    "Every evening {name} {verb} {thing} and was {feeling}.",
    '"Have you seen {thing}?" asked {other}. "Not since {weather}," said {name}.',
    "But {weather} came over {place}, and the road was gone by noon.",
    "{other} the {trade} had {verb} {thing} once, {n} years before.",
    "They walked for {n} days, and on the last one they were both {feeling}.",
    "Nobody believed {name}; still, {other} {verb} {thing} all the same.",
    "It cost {n} coins, which was more than {name} the {trade} had ever owned.",
]


def tale(rng):
    name, other = rng.sample(NAMES, 2)
    trade, place, thing = rng.choice(TRADES), rng.choice(PLACES), rng.choice(THINGS)

    def fill(line):
        return line.format(
            name=name,
            other=other,
            trade=rng.choice(TRADES),
            place=place,
            thing=rng.choice([thing, thing, rng.choice(THINGS)]),
            weather=rng.choice(WEATHER),
            verb=rng.choice(VERBS),
            feeling=rng.choice(FEELINGS),
            n=rng.randint(2, 90),
        )

    lines = [f"{name} the {trade} lived in {place}, and owned nothing but {thing}."]
    lines += [fill(rng.choice(MIDDLES)) for _ in range(rng.randint(3, 7))]
    return " ".join([*lines, fill(rng.choice(ENDS))])


if __name__ == "__main__":
    generator = random.Random(20)
    print("\n\n".join(tale(generator) for _ in range(420)))
