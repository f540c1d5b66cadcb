"""Chat templates that a server must survive, by what they do; and what is said of each where it runs in a process of its own."""

_LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
_WRITING_LOOP = _LOOP.replace("{% endfor %}", "x{% endfor %}", 1)
_NS = "{% set ns = namespace(s='ab', l=[1], n=3) %}"
_MANY = "{% for i in range(9999) %}"

SLOW, LONG, LARGE = "took longer than", "wrote more than", "MiB of memory"

IN_STEPS = {
    "nested loops": (_LOOP, SLOW),
    "nested loops that write": (_WRITING_LOOP, f"{SLOW}|{LONG}"),
    "nested loops in a macro": (
        "{% macro m() %}" + _WRITING_LOOP + "{% endmacro %}{{ m() }}",
        f"{SLOW}|{LONG}",
    ),
    "recursion in two": ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(70) }}", SLOW),
    "text that is doubled": (_NS + _MANY + "{% set ns.s = ns.s + ns.s %}{% endfor %}", LONG),
    "text that is doubled by tilde": (_NS + _MANY + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}", LONG),
    "text that is doubled in a block": (
        _NS + _MANY + "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}",
        LONG,
    ),
    "text that is doubled by a macro": (
        _NS + "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + _MANY + "{% set ns.s = m(ns.s) %}{% endfor %}",
        LONG,
    ),
    "text that is doubled by an if": (_NS + _MANY + "{% set ns.s = ns.s + ns.s if i >= 0 else '' %}{% endfor %}", LONG),
    "text that is doubled as parts": (_NS + _MANY + "{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}", LONG),
    "text that is escaped again and again": (_NS + _MANY + "{% set ns.s = (ns.s ~ '\\\\') | tojson %}{% endfor %}", LONG),
    "text that is replaced": (_NS + _MANY + "{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}", LONG),
    "a list that is doubled": (_NS + _MANY + "{% set ns.l = ns.l + ns.l %}{% endfor %}", LONG),
    "a number that is squared": (_NS + _MANY + "{% set ns.n = ns.n * ns.n %}{% endfor %}", "number of more than"),
    "output without end": ("{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 1000 }}{% endfor %}{% endfor %}", LONG),
}
"""Of many small steps, or of steps that are seen to be too large."""

IN_ONE_STEP = {
    "a power": ("{{ 10 ** (10 ** 8) }}", "number of more than"),
    "a power of constants": ("{{ (10 ** (10 ** 8)) % 7 }}", "number of more than"),
    "text times": ("{{ 'a' * 10 ** 10 }}", LONG),
    "times text": ("{{ 10 ** 10 * 'a' }}", LONG),
    "a list times": ("{{ ([1] * 10 ** 10) | length }}", LONG),
    "bytes times": ("{{ ('a'.encode() * 10 ** 10) | length }}", LONG),
    "percent": ("{{ '%1000000000d' % 1 }}", LONG),
    "percent star": ("{{ '%*d' % (1000000000, 1) }}", LONG),
    "percent of a field": ("{{ '%(x).1000000000f' % {'x': 1} }}", LONG),
    "format": ("{{ '{:1000000000}'.format(1) }}", LONG),
    "format within format": ("{{ '{:{}}'.format(1, 1000000000) }}", LONG),
    "format_map": ("{{ '{a:1000000000}'.format_map({'a': 1}) }}", LONG),
    "format of markup": ("{{ ('{:1000000000}' | safe).format(1) }}", LONG),
    "the format filter": ("{{ '%1000000000d' | format(1) }}", LONG),
    "center": ("{{ 'a' | center(10 ** 9) }}", LONG),
    "the center method": ("{{ 'a'.center(10 ** 9) }}", LONG),
    "ljust": ("{{ 'a'.ljust(10 ** 9) | length }}", LONG),
    "zfill": ("{{ 'a'.zfill(10 ** 9) | length }}", LONG),
    "ljust of markup": ("{{ ('a' | safe).ljust(10 ** 9) | length }}", LONG),
    "ljust of bytes": ("{{ 'a'.encode().ljust(10 ** 9) | length }}", LONG),
    "to_bytes": ("{{ (1).to_bytes(length=10 ** 9, byteorder='big') | length }}", LONG),
    "expandtabs": ("{{ '\t'.expandtabs(10 ** 9) | length }}", LONG),
    "indent": ("{{ 'a\nb' | indent(10 ** 9) }}", LONG),
    "indent by text": ("{{ ('\n' * 99999) | indent('a' * 99999, blank=true) }}", LONG),
    "wordwrap": ("{{ ('ab' * 9999) | wordwrap(1, wrapstring='a' * 99999) }}", LONG),
    "replace": ("{{ ('a' * 99999).replace('a', 'b' * 99999) | length }}", LONG),
    "the replace filter": ("{{ ('a' * 99999) | replace('a', 'b' * 99999) }}", LONG),
    "join": ("{{ (['a'] * 99999) | join('b' * 99999) }}", LONG),
    "the join method": ("{{ ('b' * 99999).join(['a'] * 99999) | length }}", LONG),
    "translate": ("{{ ('a' * 99999).translate({97: 'b' * 99999}) | length }}", LONG),
    "tojson": ("{{ [1, 2] | tojson(indent=10 ** 9) }}", LONG),
    "tojson by text": ("{{ ([1] * 99999) | tojson(indent='a' * 99999) }}", LONG),
    "batch": ("{{ [1] | batch(10 ** 9, 0) | list | length }}", "rows"),
    "slice": ("{{ [1] | slice(10 ** 9) | list | length }}", "rows"),
    "round": ("{{ 5 | round(-(10 ** 9)) }}", "number of more than"),
    "lipsum": ("{{ lipsum(10 ** 8) }}", LONG),
    "lipsum of words": ("{{ lipsum(1, false, 10 ** 9, 10 ** 9 + 1) }}", LONG),
}

UNSEEN = {
    "a list that holds itself many times": (
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        f"{SLOW}|{LARGE}",
    ),
    "the same as JSON": (
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
        f"{SLOW}|{LARGE}",
    ),
    "the same in tests": (
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}"
        "{% endfor %}{{ ns.l == ns.m }}",
        SLOW,
    ),
    "sums of lists": ("{{ ([range(99999) | list] * 99999) | sum(start=[]) | length }}", f"{SLOW}|{LARGE}"),
    "lists of numbers": (
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [range(99999) | list] %}{% endfor %}",
        f"{SLOW}|{LARGE}",
    ),
}
"""What the guards within a template's own process do not see, and the operating system ends."""

NO_PROGRAM = {
    "half a tag": ("{% for %}", "not valid Jinja"),
    "brackets within brackets": ("{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}", "not valid Jinja"),
    "loops within loops": ("{% for a in b %}" * 25 + "{% endfor %}" * 25, "not valid Jinja: too many statically nested blocks"),
    "ifs within ifs": ("{% if a %}" * 3000 + "{% endif %}" * 3000, "not valid Jinja"),
    "a number of many digits": ("{{ 9" + "9" * 9000 + " }}", "not valid Jinja"),
    "a long program": ("{{ a }}" * 37000, f"{SLOW}|{LARGE}"),
    "a long sum": ("{{ 1" + "+1" * 99999 + " }}", f"{SLOW}|{LARGE}|not valid Jinja"),
    "megabytes": ("x" * 3_000_000, "has 3000000 characters"),
}

RECURSION = "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}"
"""Ends by itself, in an error of the messages'."""
