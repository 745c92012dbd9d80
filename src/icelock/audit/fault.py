"""``Fault``: what is wrong with the file that is being read, on its way to the findings."""

from __future__ import annotations


class Fault(Exception):  # noqa: N818 - what is found, not an error of the program
    """A finding's code and sentence."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
