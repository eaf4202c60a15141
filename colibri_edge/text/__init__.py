"""Text: tokenizer, chat template, streaming, stop strings.

    tokenizer.json / GGUF fields --compile.py--> table blob --tokenizer.py--> ids, text
    messages --template.py--> segments (text, is_markup) --Tokenizer.encode_segments--> ids
    ids --Tokenizer.stream--> text --stream.py--> text without stop strings, finish reason
"""
