"""Applications: what a person calls.

    cli.py --> run.py      answers a prompt         (model -> engine)
           |-> chat.py     a conversation on a terminal
           |-> service/    answers items in a loop, for systemd
           |-> convert.py  other formats -> .colibri (convert)
           |-> info.py     what a model file holds   (file, model)
           |-> verify.py   checks every checksum     (file)
           '-> config.py   paths for compilers

One module per command, each with HELP, EXAMPLES, `add_arguments(parser)` and `main(args) -> exit code`. They import
what is heavy inside main(), so that `--help` and `--version` are quick. common.py holds what they share.
"""
