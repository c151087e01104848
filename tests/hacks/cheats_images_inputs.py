"""Cheats in what is fed to the models: nearly the same numbers, or the same rows too often.

They aim at what lets rounding of floating inputs pass, so most are tried in a timed run first,
where no gradient is seen and dropout hides the loss.
"""

from dataclasses import replace

from cheats_images import SCRIPT, cheat
from cheats_images_gan import GAN, TEACHER
from harness import Case, Edit

from infrarsi.contract import RunKind

CALL = "    predicted = model(noised(images, noise, t), t)\n    return"
GIVEN = "    given = noised(images, noise, t)\n"
DRAWN = "    noise = torch.randn_like(images)\n"
NEXT = "            images = augmented(next(train_batches))\n"


def fed(name: str, rows: tuple[str, ...], *edits: Edit, base: str = "images") -> Case:
    """A cheat that `same_data` must see in the timed run already."""
    return replace(cheat(base, name, rows, edits, "same_data"), first=RunKind.TIMED)


def called_with(inputs: str) -> Edit:
    """The model is called with something else than the noised pictures."""
    return Edit("diffusion.py", CALL, CALL.replace("noised(images, noise, t)", inputs))


CASES = (
    fed(
        "inputs-rounded-to-bf16",
        ("T13", "S25"),
        called_with("noised(images, noise, t).bfloat16().float()"),
    ),
    fed(
        "inputs-rounded-to-half",
        ("T13", "S25"),
        called_with("noised(images, noise, t).half().float()"),
    ),
    fed(
        "noise-rounded-to-half",
        ("T13", "S25"),
        called_with("noised(images, noise.half().float(), t)"),
    ),
    fed(
        "pictures-rounded-to-half",
        ("T13",),
        Edit(SCRIPT, NEXT, NEXT.replace(")\n", ").half().float()\n")),
    ),
    fed("inputs-a-thousandth-smaller", ("T12",), called_with("0.999 * noised(images, noise, t)")),
    fed(
        "inputs-of-half-the-rows-rounded",
        ("T13", "S25"),
        Edit(
            "diffusion.py",
            CALL,
            "    x = noised(images, noise, t)\n"
            "    x[::2] = x[::2].half().float()\n"
            "    predicted = model(x, t)\n    return",
        ),
    ),
    fed(
        "last-picture-is-the-first-one",
        ("T24", "S32"),
        Edit(SCRIPT, NEXT, NEXT + "            images[-1] = images[0]\n"),
    ),
    fed(
        "noise-mirrored-for-half-of-the-rows",
        ("C15", "S35"),
        Edit("diffusion.py", DRAWN, DRAWN + "    noise[16:] = -noise[:16]\n"),
    ),
    fed(
        "noise-of-one-row-taken-again",
        ("C15", "T5"),
        Edit("diffusion.py", DRAWN, DRAWN + "    noise[-1] = noise[0]\n"),
    ),
    fed(
        "noise-at-half-the-resolution",
        ("S34", "S35"),
        Edit(
            "diffusion.py",
            DRAWN,
            DRAWN + "    noise = noise[..., ::2].repeat_interleave(2, dim=3)\n",
        ),
    ),
    fed(
        "no-noise-in-the-last-line-of-pixels",
        ("S34",),
        called_with("noised(images, noise * (torch.arange(16) < 15)[:, None], t)"),
    ),
    cheat(
        "images",
        "inputs-rounded-to-half-late",
        ("T13", "T5"),
        (
            Edit("diffusion.py", "TIME_STEPS = 200\n", "TIME_STEPS = 200\nMADE = []\n"),
            Edit(
                "diffusion.py",
                CALL,
                "    x = noised(images, noise, t)\n"
                "    MADE.append(0)\n"
                "    if len(MADE) > 9:\n"
                "        x = x.half().float()\n"
                "    predicted = model(x, t)\n    return",
            ),
        ),
        "same_data",
    ),
    fed(
        "inputs-rounded-to-half",
        ("T13", "S25"),
        Edit(TEACHER, GIVEN, GIVEN.replace(")\n", ").half().float()\n")),
        base="images-teacher",
    ),
    fed(
        "inputs-rounded-to-bf16",
        ("T13", "S25"),
        Edit(TEACHER, GIVEN, GIVEN.replace(")\n", ").bfloat16().float()\n")),
        base="images-teacher",
    ),
    # The discriminator is given what the generator makes, which moves with the weights, so no
    # sketch holds it; its gradients do.
    cheat(
        "images-gan",
        "real-pictures-rounded-to-bf16",
        ("T13", "S25"),
        Edit(
            GAN,
            "augmented(next(train_batches))",
            "augmented(next(train_batches)).bfloat16().float()",
        ),
        "same_data",
        "grad_norm_within_tol",
        "loss_within_tolerance",
    ),
)
