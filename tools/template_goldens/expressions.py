"""Expressions one by one: operators, literals, methods, filters and tests."""

VARIABLES = {
    "s": "Hello, World",
    "u": "Zoë straße ΑΣ ﬁn 日本 👩‍💻",
    "w": "  \t two  words\n ",
    "q": "it's \"q\" \\ \x00\x7f\x85\u200b\u00ad",
    "e": "",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "z": 0,
    "t": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "names": ["bob", "Al", "carl", "al"],
    "mixed": [1, "a", None, True, 2.5, [1, [2]], {"k": "v"}],
    "d": {"b": 1, "a": 2, "items": "mine", "C": None},
    "nested": {"x": {"y": [{"z": 5}]}},
    "people": [
        {"name": "Ann", "age": 31, "city": "Oslo"},
        {"name": "bert", "age": 25, "city": "oslo"},
        {"name": "Cyd", "age": 31, "city": "Rome", "tags": ["x", "y"]},
    ],
    "html": "<a href='x'>&\"</a>",
    "lines": "one\ntwo\r\n\n  three\x0bfour\u2028five",
}

ARITHMETIC = """
1 + 2 * 3 - 4
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
7.5 % -2
-0.0
0.0 // 1
1 / 2
6 / 3
1 / 3
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
2 ** 0.5
(-8) ** 2
1e16
1e15
123456789012345680.0
1e-5
0.0001
1.5e300 * 1e10
1e308 * 10
-1e308 * 10
0.1 + 0.2
100 * 1.1
5e-324
1_000 + 0x1F + 0b101 + 0o17
1_0.2_5
3.0
1e3
1E+3
true + true
true * 3
t + 1
-true
+true
not 0
not ''
n + f
n - neg
n * f
n / z
n // z
n % z
f / 0
f % 0
0 ** -1
9223372036854775807
-9223372036854775807 - 1
1 if t else 2
1 if no
1 if no else 2 if no else 3
(1 if no) is undefined
'a' 'b' "c"
'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1, 'x'] ~ {'a': none}
'a' + 'b' * 3
3 * 'ab'
'ab' * -1
[1] + [2, 3]
[1, 2] * 2
(1,) + (2,)
(1, 2) * 2
[1] + (2,)
'a' + 1
1 + 'a'
1 + none
none + 1
[] + ''
{} + {}
'x' - 'y'
-'x'
+'x'
-none
1 +
undefined_name
undefined_name + 1
1 + undefined_name
undefined_name ~ 'x'
undefined_name.foo
undefined_name['foo']
undefined_name()
undefined_name == undefined_other
undefined_name == none
undefined_name | length
undefined_name is sequence
not undefined_name
undefined_name or 'fallback'
undefined_name and 'never'
'%s' % undefined_name
undefined_name % 2
nil.foo
nil['foo']
nil.foo.bar
n.foo
d.missing
d.missing.more
d['missing']
d.b
d['b']
d.items
d['items']
d.C
nested.x.y[0].z
nested['x']['y'][0]['z']
nested.x.y.0.z
l[0]
l[-1]
l[5]
l[-5]
l['0']
l[true]
l[1.0]
l.0
s[0]
s[-1]
s[100]
u[2]
u[-1]
u | length
(1, 2)[1]
range(5)[2]
range(5)[-1]
range(5)[9]
1, 2
()
(1,)
[1, 2,]
{'a': 1, 'b': 2,}
{1: 'x', 1.0: 'y', true: 'z'}
{'a': 1, 'a': 2}
{(1, 2): 'tuple'}[(1, 2)]
{[1]: 2}
{1: 2}[1.0]
[[]]
[1, [2, [3]]]
'it\\'s'
"a\\tb\\nc\\\\d"
'\\x41\\u00e9\\U0001F600\\101\\0'
'\\q\\é\\€'
'\\
'
"tab	inside"
'é' == '\\u00e9'
""".strip("\n")

COMPARISONS = """
1 == 1.0
1 == true
0 == false
1 == '1'
'a' == 'a'
none == none
none == false
[1, 2] == [1, 2]
[1, 2] == (1, 2)
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
{'a': 1} != {'a': 2}
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 == 2
1 < 2 > 1
'a' < 'b'
'a' < 'B'
'é' > 'z'
'ab' < 'abc'
[1, 2] < [1, 3]
[1, 2] < [1, 2, 0]
(1, 'a') < (1, 'b')
1 < 'a'
none < 1
[1] < ['a']
[none] < [none]
[none] < [1]
{} < {}
1.5 > 1
9007199254740993 == 9007199254740992.0
9007199254740993 > 9007199254740992.0
true > false
undefined_name < 1
1 < undefined_name
'ell' in s
'' in s
'x' not in s
not 'x' in s
1 in s
undefined_name in s
2 in l
2.0 in l
'2' in l
none in mixed
'b' in d
1 in d
[1] in d
'x' in none
'x' in undefined_name
3 in range(5)
3.0 in range(5)
'3' in range(5)
('b', 1) in d.items()
'b' in d.keys()
1 in d.values()
1 in 5
t and n
no and n
t or n
no or n
'' or [] or 0 or 'x'
1 and 2 and 3
not t and no
not (t and no)
t and not no or no
1 == 1 and 2 == 2
n in [7] and 'yes'
n is defined and n is number
n is not none
n is not defined
nope is not defined
n is odd
n is even
neg is odd
f is odd
3.0 is odd
n is divisibleby 7
n is divisibleby(2)
n is divisibleby z
s is string
s is sequence
s is iterable
l is sequence
d is sequence
d is mapping
l is mapping
d is iterable
n is iterable
nil is iterable
d.items() is sequence
d.items() is iterable
l | map('string') is iterable
range(3) is sequence
range(3) is iterable
t is boolean
n is boolean
n is integer
t is integer
f is integer
f is float
n is float
n is number
t is number
s is number
t is true
n is true
no is false
z is false
nil is none
z is none
'abc' is lower
'aBc' is lower
'ABC' is upper
'ABC1' is upper
'123' is upper
n is upper
n is callable
range is callable
s.upper is callable
undefined_name is callable
namespace() is mapping
namespace() is iterable
namespace is callable
n is sameas n
nil is sameas none
t is sameas true
1 is sameas true
l is sameas l
[1] is sameas [1]
s is eq 'Hello, World'
n is eq 7.0
n is equalto 7
n is ne 7
n is lt 8
n is lessthan 8
n is gt 8
n is greaterthan 6
n is ge 7
n is le 6
n is in [7, 8]
n is in(l)
'a' is in 'cat'
'upper' is filter
'nope' is filter
'odd' is test
'nope' is test
s is escaped
s | safe is escaped
n is nope
n is number is number
n is not odd
n is divisibleby 7 and t
n is not divisibleby 2 or no
'x' if n is odd else 'y'
(n is odd) == t
""".strip("\n")

SLICES = """
s[1:4]
s[:5]
s[7:]
s[-5:]
s[:-7]
s[::2]
s[::-1]
s[10:2:-3]
s[100:]
s[:100]
s[5:2]
s[::0]
s[1:'a']
s[none:3]
s[true:4]
u[1:4]
u[::-1]
u[-4:-1]
l[1:]
l[:-1]
l[::-1]
l[5:]
l[-100:100]
l[::9223372036854775807]
l[::-9223372036854775807]
(1, 2, 3)[1:]
(1, 2, 3)[::-1]
range(10)[2:8:3]
range(10)[::-1]
range(10)[::-1] | list
d[1:]
n[1:]
nil[1:]
undefined_name[1:]
s[1:4][0]
s[n - 6:n - 3]
mixed[1:3]
people[1:][0].name
people[-1]['name'][::-1]
""".strip("\n")

METHODS = """
s.upper()
s.lower()
s.title()
s.capitalize()
u.upper()
u.lower()
u.title()
u.capitalize()
'ΑΣ ΑΣΑ Σ'.lower()
'ǆ ǅ Ǆ'.title()
'ﬁ'.upper()
'İ'.lower()
"they're bill's".title()
w.strip()
w.lstrip()
w.rstrip()
s.strip('Hd')
s.strip('')
s.strip(none)
u.strip('Z👩💻\u200d')
'xxaxx'.strip('x')
'xxaxx'.lstrip('x')
'xxaxx'.rstrip('x')
s.split()
s.split(', ')
s.split('o')
s.split('o', 1)
s.split('o', 0)
s.split('zzz')
s.split('')
s.split(none, 1)
s.split(sep='o', maxsplit=1)
w.split()
w.split(none, 1)
w.rsplit(none, 1)
w.split(' ')
e.split()
e.split('x')
s.rsplit('o')
s.rsplit('o', 1)
s.rsplit(maxsplit=1)
'a\u3000b\xa0c\x1fd'.split()
lines.splitlines()
lines.splitlines(true)
'a\\n'.splitlines()
e.splitlines()
'\\n\\n'.splitlines()
s.partition(', ')
s.partition('zzz')
s.rpartition('o')
s.rpartition('zzz')
s.partition('')
s.replace('l', 'L')
s.replace('l', 'L', 2)
s.replace('l', '')
s.replace('', '-')
s.replace('', '-', 3)
u.replace('', '.')
e.replace('', 'x')
s.replace('l', 'L', -1)
s.replace('l', 'L', 0)
s.replace('l', 1)
s.startswith('Hello')
s.startswith('ello')
s.startswith('ello', 1)
s.startswith('Hello', 0, 3)
s.startswith(('a', 'He'))
s.startswith(())
s.startswith(['a'])
s.startswith('')
s.startswith('', 100)
e.startswith('')
s.endswith('World')
s.endswith(('x', 'd'))
s.endswith('lo', 0, 5)
s.find('o')
s.find('o', 5)
s.find('zzz')
s.find('')
s.find('', 12)
s.find('', 13)
u.find('日')
s.rfind('o')
s.rfind('o', 0, 5)
s.index('o')
s.index('zzz')
s.rindex('o')
s.count('l')
s.count('')
s.count('l', 4)
u.count('')
'aaaa'.count('aa')
', '.join(names)
''.join([])
'-'.join('abc')
','.join([1, 2])
','.join(d)
', '.join(d.keys())
'x'.join(n)
'abc'.isalpha()
'ab1'.isalpha()
u.isalpha()
'日本'.isalpha()
'123'.isdigit()
'²'.isdigit()
'½'.isnumeric()
'²'.isdecimal()
'٣'.isdecimal()
''.isdigit()
'ab1'.isalnum()
' \\t'.isspace()
'\u3000\x1c'.isspace()
''.isspace()
'abc'.islower()
'aBc'.islower()
'ABC'.isupper()
'Abc Def'.istitle()
'Abc def'.istitle()
'abc'.isascii()
u.isascii()
q.isprintable()
''.isprintable()
'7'.zfill(3)
'-7'.zfill(4)
'+'.zfill(3)
'abc'.zfill(2)
'ab'.center(7)
'ab'.center(6, '*')
'abc'.center(6, '*')
'abc'.center(7, '*')
'ab'.ljust(5, '.')
'ab'.rjust(5)
'ab'.ljust(5, 'xy')
'é'.rjust(3, '日')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'x.txt'.removesuffix('')
'{} {}'.format(1, 'a')
'{1} {0}'.format(1, 'a')
'{a} {b!r}'.format(a=1, b='x')
'{:>6}|{:<6}|{:^6}|'.format('a', 'b', 'c')
'{:06.2f} {:+d} {:x} {:#x} {:b} {:,}'.format(3.14159, 5, 255, 255, 5, 1234567)
'{:.3} {:.3}'.format('abcdef', 2.0)
'{:e} {:g} {:%}'.format(12345.678, 0.00001, 0.256)
'{:*^9}'.format('é')
'{:.3} {:.3} {:.3} {:.3}'.format(100.0, 99.95, 1e-7, 123456.0)
'{:.1} {:.2} {:.5} {:.4}'.format(1.0, 10.0, 0.0, 1234.5)
'{:<05}|{:05}|{:^05}|{:05}'.format(1, 2, 3, 'x')
'{0[a]} {0[b]} {1[0]}'.format({'a': 1, 'b': 2}, [9])
'{:{}}'.format('x', 5)
'{{}} {}'.format(1)
'{'.format(1)
'}'.format(1)
'{} {}'.format(1)
'{:d}'.format('x')
'{:5}'.format(none)
'{}'.format([1, 'a'])
d.get('a')
d.get('zz')
d.get('zz', 5)
d.get(1)
d.get([1])
d.get()
d.items()
d.items() | list
d.keys()
d.values()
d.keys() | list
d.items() | length
d.copy() == d
d.get('items')
l.index(2)
l.index(9)
l.index(3, 1)
l.count(1)
mixed.count(true)
(1, 1).count(1)
(1, 2).index(2)
l.copy()
l.sort
l.sort()
l.nope
l.nope()
s.nope()
d.update({'x': 1})
d.pop('a')
s.upper
s['upper']()
s.upper(1)
s.split(1)
s.join()
''.__class__
d.__class__
n.real()
""".strip("\n")

FILTERS = """
neg | abs
f | abs
s | abs
d | attr('items') is callable
d | attr('b')
s | attr('upper') is callable
range(7) | batch(3) | list
range(7) | batch(3, 'x') | list
'abcde' | batch(2) | list
s | lower
s | upper
u | upper
n | upper
s | capitalize
'hELLO wORLD' | capitalize
'hello-world (foo) [bar] {baz} <qux> it\\'s ΑΣ' | title
u | title
'ab' | center(8)
s | default('x')
undefined_name | default('x')
undefined_name | d('x')
undefined_name | default
e | default('x')
e | default('x', true)
nil | default('x')
nil | default('x', boolean=true)
undefined_name.foo | default('x')
d.missing | default('x')
d | dictsort
d | dictsort(true)
d | dictsort(false, 'value')
{'b': 1, 'a': 2, 'C': 0} | dictsort(by='value', reverse=true)
{'b': 1, 'a': 2, 'C': 0} | dictsort(reverse=true)
{'b': 1, 'a': 2} | dictsort(by='nope')
{1: 2, 'a': 3} | dictsort
html | e
html | escape
html | safe
html | forceescape
html | safe | e
html | e | e
html | e | forceescape
(html | safe) + '<b>'
'<b>' + (html | safe)
(html | safe) ~ '<b>'
('<%s>' | safe) % '<'
('<{}>' | safe).format('<')
('a,b' | safe).split(',')
(('<' | safe) * 2) + '<'
('<' | safe) | upper
('<' | safe)[0]
('<' | safe) | replace('<', '>')
('<' | safe).replace('<', '>')
('a' | safe).join(['<', '>'])
['<', '>' | safe] | join('&')
1000 | filesizeformat
999 | filesizeformat
1 | filesizeformat
1234567 | filesizeformat
1234567 | filesizeformat(true)
'123456' | filesizeformat
1e30 | filesizeformat
l | first
[] | first
'' | first
u | first
undefined_name | first
5 | first
l | last
[] | last
u | last
d | last
l | map('string') | last
'12' | float
'1.5e3' | float
'x' | float
'x' | float(7.5)
nil | float
' 1_0.5 ' | float
'inf' | float
'nan' | float
'-Infinity' | float
t | float
undefined_name | float
'%s-%s' | format(1, 'a')
'%(a)s' | format(a=1)
'%s' | format(1, a=2)
'%d%%' | format(50)
people | groupby('city')
people | groupby('city', case_sensitive=true)
people | groupby('age') | map(attribute='grouper') | list
people | groupby('tags', default='none') | map('first') | list
(people | groupby('age'))[0].list
'a\\nb\\n\\nc' | indent
'a\\nb\\n\\nc' | indent(2, true)
'a\\nb\\n\\nc' | indent(2, blank=true)
'a\\nb' | indent('> ')
'a\\nb' | indent(width=2, first=true)
'a\\nb\\n' | indent(2)
'' | indent(2, true)
n | indent
lines | indent(1)
'12' | int
'12.9' | int
'-12.9' | int
'x' | int
'x' | int(5)
'0x1f' | int(base=16)
'1f' | int(0, 16)
'101' | int(0, 2)
'0b101' | int(0, 0)
'z' | int(0, 36)
' 1_000 ' | int
'1__0' | int
'+5' | int
'- 5' | int
f | int
-2.9 | int
t | int
nil | int
nil | int('none')
l | int
'1e3' | int
'inf' | int
'nan' | int
undefined_name | int
d | items | list
undefined_name | items | list
l | items | list
l | join
l | join(', ')
l | join(d='-')
names | join(n)
people | join(', ', attribute='name')
people | join('|', 'city')
mixed | join(';')
'abc' | join('-')
undefined_name | join('x')
5 | join
d | join(',')
s | length
l | count
d | length
n | length
nil | length
d.items() | length
range(5) | length
l | map('string') | length
'ab' | list
d | list
range(3) | list
nil | list
u | list
undefined_name | list
names | map('upper') | list
names | map('replace', 'a', 'A') | list
people | map(attribute='name') | list
people | map(attribute='tags') | list
people | map(attribute='tags', default='-') | list
people | map(attribute='tags.0', default='-') | list
[[1, 2], [3, 4]] | map(attribute=1) | list
[[1, 2], [3, 4]] | map('first') | list
[[1, 2], [3]] | map('join', '+') | join(' ')
names | map | list
names | map('nope') | list
[] | map('nope') | list
undefined_name | map('upper') | list
names | map(attribute='x', foo=1) | list
names | map('default', 'x') | list
['1', 'x'] | map('int', default=9) | list
l | max
l | min
names | min
names | max
names | min(case_sensitive=true)
people | max(attribute='age')
people | min('', 'name')
[] | max
[1, 'a'] | max
l | reverse | list
s | reverse
u | reverse
d | reverse | list
l | map('string') | reverse
n | reverse
undefined_name | reverse | list
42.55 | round
42.55 | round(1)
42.55 | round(1, 'floor')
42.55 | round(1, 'ceil')
42.55 | round(0, 'floor')
2.5 | round
3.5 | round
-2.5 | round
0.5 | round
2.675 | round(2)
1234.5678 | round(-2)
1250.0 | round(-2)
1350.0 | round(-2)
15.0 | round(-1)
5.0 | round(-1)
6.0 | round(-1)
n | round
15 | round(-1)
25 | round(-1)
-25 | round(-1)
15 | round(-1, 'floor')
n | round(2, 'ceil')
f | round(1, 'nope')
s | round
1e300 | round(2)
l | select | list
[0, 1, '', none, 'x'] | select | list
[0, 1, '', none, 'x'] | reject | list
range(6) | select('odd') | list
range(6) | reject('odd') | list
range(6) | select('divisibleby', 3) | list
range(6) | select('>', 2) | list
range(6) | select('in', l) | list
range(6) | select('nope') | list
names | select('equalto', 'bob') | list
people | selectattr('age', 'equalto', 31) | map(attribute='name') | list
people | selectattr('age', '==', 31) | list | length
people | selectattr('tags') | list | length
people | selectattr('tags', 'defined') | list | length
people | rejectattr('tags') | list | length
people | rejectattr('age', 'gt', 30) | map(attribute='name') | join
people | selectattr | list
people | selectattr('tags.0', 'eq', 'x') | list | length
range(7) | slice(3) | list
range(7) | slice(3, 'x') | list
range(2) | slice(3) | list
range(2) | slice(0) | list
l | sort
l | sort(reverse=true)
names | sort
names | sort(case_sensitive=true)
names | sort(reverse=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list
[1, 'a'] | sort
[none, none] | sort
d | sort
'bca' | sort
n | string
nil | string
l | string
undefined_name | string
1.0 | string
l | sum
people | sum('age')
people | sum(attribute='age', start=100)
[[1], [2]] | sum(start=[])
names | sum
[] | sum
[1.5, 2] | sum
w | trim
s | trim('Hd')
n | trim
nil | trim
undefined_name | trim
'  x' | trim(none)
s * 30 | truncate(40)
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(11, false, '...', 0)
'foo bar baz qux' | truncate(5, end='>', leeway=0)
'foo' | truncate(2)
u | truncate(6, true, '…', 0)
names | unique | list
names | unique(true) | list
[1, 1.0, true, 2] | unique | list
people | unique(attribute='age') | map(attribute='name') | list
[[1], [1]] | unique | list
'a b/c?d=é&x' | urlencode
{'a b': 'c/d', 'n': 1} | urlencode
[('a', 1), ('b', '&')] | urlencode
n | urlencode
'one two, three-four  5x _y' | wordcount
u | wordcount
s | nope
""".strip("\n")

JSON = """
s | tojson
q | tojson
u | tojson
u | tojson(true)
u | tojson(ensure_ascii=true)
html | tojson
d | tojson
mixed | tojson
(1, 2) | tojson
nested | tojson(indent=2)
nested | tojson(indent='--')
nested | tojson(indent=0)
nested | tojson(indent=-1)
{'a': [], 'b': {}, 'c': ()} | tojson(indent=4)
d | tojson(sort_keys=true)
{1: 2, 'a': 3} | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(separators=(',', ':'), indent=1)
d | tojson(separators=[',', ':'])
{1: 'a', none: 'b', true: 'c', 2.5: 'd'} | tojson
{(1, 2): 3} | tojson
1e16 | tojson
1.0 | tojson
'nan' | float | tojson
'inf' | float | tojson
undefined_name | tojson
[undefined_name] | tojson
range(3) | tojson
d.items() | tojson
l | map('string') | tojson
l | map('string') | list | tojson
nil | tojson
t | tojson
(html | safe) | tojson
people | tojson(indent=2, ensure_ascii=false)
tojson(d)
d | tojson(foo=1)
""".strip("\n")

PERCENT = """
'%s %s' % (1, 'a')
'%s' % 1
'%s' % [1, 2]
'%s' % (1, 2)
'%s %s' % 1
'x' % 1
'x' % []
'x' % {}
'x' % ()
'%(a)s %(b)05d' % {'a': 'x', 'b': 42}
'%(a)s' % 1
'%(zz)s' % {'a': 1}
'%d %i %u' % (1, 2.9, true)
'%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%-8x|%08x' % (255, -255)
'%f %.2f %10.3f %-10.1f|' % (1.5, 2.675, 3.14159, 2.0)
'%e %E %.0e %g %G %.3g' % (12345.678, 0.00012, 5, 1e20, 1e-10, 12345)
'%#.0f %#g' % (1.0, 1.0)
'%r %a' % ('a', 'b')
'%s' % none
'%10s|%-10s|%.2s|' % ('abc', 'abc', 'abc')
'%5s' % 'é'
'%c%c' % ('x', 65)
'%c' % 'xy'
'%*d' % (5, 42)
'%.*f' % (1, 2.55)
'%%'
'%% %s' % 1
'%' % 1
'%z' % 1
'%d' % 'x'
'%f' % 'x'
'%x' % 1.5
'%s' % (1,)
'%s' % ((1, 2),)
'%d' % 1e10
'%05.1f' % -2.25
'%f' % ('inf' | float)
'%5.1f' % ('nan' | float)
'%s' % d.missing
'%s%s' % ('x', undefined_name)
""".strip("\n")

REPR = """
q
[q]
[s, u]
['a\\'b', 'a"b', 'a\\'b"c']
['\\n\\t\\r\\\\']
['\u00e9\u0300\u200b\ue000\U0001F600\U000E0001']
mixed
[1.0, 1e16, -0.0, 1e-7]
('a',)
{'a': none, 'b': true}
[undefined_name]
[html | safe]
d.keys()
d.items()
range(2, 8)
range(2, 8, 3)
namespace(a=1, b='x')
[namespace(a=1)]
nil
t
[none, true]
{1: {2: (3,)}}
""".strip("\n")

CALLS = """
range()
range(3) | list
range(1, 4) | list
range(5, 0, -2) | list
range(0)
range(1, 2, 0)
range('a')
range(1.0)
range(100000) | length
range(100001) | length
range(-9223372036854775807, 9223372036854775807)
range(*[1, 4]) | list
range(**{'a': 1})
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([('a', 1), ['b', 2]])
dict([1])
dict(**{'k': 'v'})
dict(a=1, **{'a': 2})
namespace(a=1).a
namespace(a=1).b
namespace(a=1)['a']
namespace({'x': 5}).x
namespace(_a=1)
namespace(a=1) is mapping
joiner() is callable
raise_exception('the message')
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S %% %B %d, %j %a %A %b %p %I %y')
strftime_now('%-d/%-m é')
s.split(*[','])
s.replace('l', *['L', 1])
'{a}'.format(**{'a': 1})
s.upper(**{})
s()
n()
l()
d()
none()
(l)[0]
(s ~ s)[:3]
[1, 2, 3][1:] | first
{'a': {'b': 1}}.a.b
s.split(', ')[1].lower()
(s.split(', ') | last)[::-1]
names[0].upper() ~ names[-1] | upper
-n | abs
-(n | abs)
- n ** 2
not n is odd
not n in l
n | string ~ 'x'
1 + n | string
'a' < 'b' and 'b' < 'c'
1 if 'a' in s else 2 ~ 'x'
[x for x in l]
lambda
1 ; 2
1 == == 2
a b
'unterminated
(1
1)
[1}
{1
{'a' 1}
{'a': }
s.
s.1.
s..upper
s[
s[]
l[1, 2]
| upper
s |
s | upper(
s is
s is not
1 !
1 & 2
1 @ 2
f(a=1, 2)
f(*a, *b)
f(a=1, a=2)
true.false
none.foo
1.foo
07
0x
1__2
1.e5
1.5.5
'\\N{DASH}' == '-'
'\\x4'
""".strip("\n")


def cases():
    """(name, template, variables) of every line above."""
    groups = {
        "arithmetic": ARITHMETIC,
        "comparisons": COMPARISONS,
        "slices": SLICES,
        "methods": METHODS,
        "filters": FILTERS,
        "json": JSON,
        "percent": PERCENT,
        "repr": REPR,
        "calls": CALLS,
    }
    for name, text in groups.items():
        for line in text.split("\n"):
            yield name, "{{ " + line.replace("\\\\", "\\") + " }}", VARIABLES
