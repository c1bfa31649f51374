"""Words that prompts are made of: short and common, so that most tokenizers have each as one token.

Tokenizers of language models cut text before a space, so a text of such words, each behind a space,
has as many tokens as its words have together.
"""

from __future__ import annotations

_COMMON = """
the of to and in is it for on as with by this that at from or an be are was not have has had but
if they we you he she his her their our your its all any can will would could should may must do
does did been were more most other some such only than then when where which who what how why no
yes so up out off over into about after before between through during each few many much same
own very just also now here there new old first last next one two three four five six long short
high low good bad big small great little early late open close start end begin stop run set get
put add make take give find show tell ask use call try need want know think see look come go
work play move turn keep let help talk read write learn change follow lead stand hold bring
time year day way man world life hand part child eye place week case point number group problem
fact home water room area money story month book word side kind head house service friend power
hour game line member law car city name team minute idea body back face level office door health
person art war history party result morning reason research girl guy moment air teacher force
return value self class def import none true false list string int data file path key item index
code error type object function method test size length count sum max min left right top state
process thread memory cache block request response server client user token model layer weight
"""
WORDS = tuple(_COMMON.split())


def text_of(words: list[str]) -> str:
    """The text of a prompt, or of a part of one: each word behind a space."""

    return "".join([f" {word}" for word in words])
