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
"""
