"""Cheats on the GAN and on the student with a teacher."""

from cheats_images import cheat
from harness import Edit

GAN, TEACHER = "train_gan.py", "train_teacher.py"


GAN_CASES = (
    cheat(
        "images-gan",
        "discriminator-skipped-every-second-step",
        ("T4",),
        Edit(
            GAN,
            "        discriminator_optimizer.step()\n",
            "        if step % 2 == 0:\n            discriminator_optimizer.step()\n",
        ),
        "optimizer_steps",
        "same_workload",
    ),
    cheat(
        "images-gan",
        "generator-skipped-late",
        ("T4",),
        Edit(
            GAN,
            "        generator_optimizer.step()\n",
            "        if step != 9:\n            generator_optimizer.step()\n",
        ),
        "optimizer_steps",
    ),
    cheat(
        "images-gan",
        "discriminator-pass-reused",
        ("C15", "S34"),
        (
            Edit(
                GAN,
                "        loss_d = discriminator_loss(discriminator, real, fake)\n"
                "        loss_d.backward()\n",
                "        if step % 2 == 0:\n"
                "            loss_d = discriminator_loss(discriminator, real, fake)\n"
                "            loss_d.backward()\n"
                "            kept = [p.grad.clone() for p in discriminator.parameters()]\n"
                "        else:\n"
                "            for parameter, gradient in zip(discriminator.parameters(), kept):\n"
                "                parameter.grad = gradient.clone()\n",
            ),
        ),
        "same_workload",
        "optimizer_steps",
    ),
    cheat(
        "images-gan",
        "latents-drawn-once",
        ("C15", "T5"),
        Edit(
            GAN,
            "        z = torch.randn(args.batch_size, LATENT)\n"
            "        generator_optimizer.zero_grad()\n",
            "        generator_optimizer.zero_grad()\n",
        ),
        "same_data",
    ),
    cheat(
        "images-gan",
        "fewer-fakes-for-the-discriminator",
        ("S32",),
        Edit(GAN, "            fake = generator(z)\n", "            fake = generator(z[:16])\n"),
        "same_workload",
    ),
    cheat(
        "images-gan",
        "discriminator-norm-in-evaluation-mode",
        ("S34", "T14"),
        Edit(
            GAN,
            "        discriminator.train()\n",
            "        discriminator.train()\n        discriminator.norm2.eval()\n",
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "images-gan",
        "running-statistics-frozen",
        ("S34", "T25"),
        Edit(
            GAN,
            "    average = Average(generator, args.ema_decay)\n",
            "    average = Average(generator, args.ema_decay)\n"
            "    generator.norm1.momentum = generator.norm2.momentum = 0.0\n",
        ),
        "same_model",
        "optimizer_steps",
        "eval_matches",
        "resume_continues",
    ),
    cheat(
        "images-gan",
        "average-made-once-at-the-end",
        ("T25",),
        (
            Edit(GAN, "        average.update(generator)\n", ""),
            Edit(
                GAN,
                "    path = os.path.join(",
                "    average.module.load_state_dict(generator.state_dict())\n"
                "    path = os.path.join(",
            ),
        ),
        "same_model",
        "optimizer_steps",
        "eval_matches",
        "resume_continues",
    ),
    cheat(
        "images-gan",
        "average-leaves-the-buffers",
        ("T25",),
        Edit("averaging.py", "            mean.copy_(buffer)\n", "            pass\n"),
        "same_model",
        "optimizer_steps",
        "eval_matches",
        "resume_continues",
    ),
    cheat(
        "images-gan",
        "discriminator-frozen-from-step-eight",
        ("T3", "T4"),
        Edit(
            GAN,
            "        loss_d.backward()\n",
            "        loss_d.backward()\n"
            "        if step >= 8:\n"
            "            discriminator_optimizer.zero_grad()\n",
        ),
        "grad_norm_within_tol",
        "optimizer_steps",
    ),
    cheat(
        "images-gan",
        "generator-loss-on-half",
        ("S32",),
        Edit(
            GAN,
            "F.softplus(-discriminator(generator(z))).mean()",
            "F.softplus(-discriminator(generator(z)))[::2].mean()",
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "images-gan",
        "average-of-the-generator-not-saved",
        ("T18", "T25"),
        Edit(GAN, '{"ema": average.module.state_dict(), "generator"', '{"generator"'),
        "resume_continues",
    ),
    cheat(
        "images-gan",
        "betas-of-one-optimizer-changed",
        ("T12",),
        Edit(
            GAN,
            "        discriminator.parameters(), lr=args.lr, betas=(0.5, 0.9)\n",
            "        discriminator.parameters(), lr=args.lr, betas=(0.5, 0.99)\n",
        ),
        "same_model",
    ),
)

TEACHER_CASES = (
    cheat(
        "images-teacher",
        "teacher-frozen",
        ("T25",),
        Edit(TEACHER, "        teacher.update(student)\n", ""),
        "same_model",
        "optimizer_steps",
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "images-teacher",
        "teacher-asked-every-second-step",
        ("C15", "H8"),
        (
            Edit(TEACHER, "def student_loss(", "KEPT = []\n\n\ndef student_loss("),
            Edit(
                TEACHER,
                "        target = teacher(given, t)\n",
                "        if len(KEPT) % 2 == 0:\n"
                "            KEPT.append(teacher(given, t))\n"
                "        else:\n"
                "            KEPT.append(KEPT[-1])\n"
                "        target = KEPT[-1]\n",
            ),
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
        "eval_matches",
    ),
    cheat(
        "images-teacher",
        "teacher-is-the-student",
        ("T25", "S34"),
        Edit(
            TEACHER, "        target = teacher(given, t)\n", "        target = predicted.detach()\n"
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
        "eval_matches",
    ),
    cheat(
        "images-teacher",
        "teacher-term-dropped-late",
        ("T14", "S34"),
        (
            Edit(
                TEACHER,
                "images, args.teacher_share)",
                "images, args.teacher_share * (step < 8))",
            ),
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "images-teacher",
        "momentum-buffer-cleared",
        ("T12",),
        Edit(
            TEACHER,
            "        teacher.update(student)\n",
            "        teacher.update(student)\n        optimizer.state.clear()\n",
        ),
        "optimizer_steps",
        "same_model",
    ),
)

CASES = (*GAN_CASES, *TEACHER_CASES)
