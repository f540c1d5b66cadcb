"""Common words, of which prompts are made."""

_TEXT = """
the of and to in is was for on that with as by at from it an were are which this be or had first one their its after new who
they two her she been other when time during there into all year may more people about up out over city world state work part
university school life name group many then war home high day music number film best family long small system place water area
house public point great line second end power under game south north company road team river book large old
"""
WORDS = tuple(_TEXT.split())
