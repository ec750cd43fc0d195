"""The functions of CEL, of cel-go's extensions and of Kubernetes' libraries."""

from typing import Any

import pytest

from pinnace.cel.programs import EvaluationError, compile_expression


def evaluate(text: str) -> Any:
    return compile_expression(text, {"x": "dyn"}).evaluate({"x": {"a": 1}})


@pytest.mark.parametrize(
    "expression",
    [
        # Numbers
        "-7 / 2 == -3 && -7 % 3 == -1 && 7 % -3 == 1",
        "1.0 / 0.0 > 1e308 && double('NaN') != double('NaN')",
        "1u + 2u == 3u && 5u / 2u == 2u && uint(3) == 3u",
        "int(3.9) == 3 && int(-3.9) == -3 && int('-12') == -12 && double('1.5') == 1.5",
        "dyn(1) == 1.0 && dyn(1u) == 1 && !(dyn(true) == 1) && 1 < 1.5 && 2u > 1.5",
        "string(1.0) == '1' && string(-0.5) == '-0.5' && string(1e21) == '1e+21' && string(1e-7) == '1e-07'",
        # Logic
        "(false && 1 / 0 == 1) == false && (1 / 0 == 1 && false) == false",
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "[0, 1].exists(i, 1 / i == 1) && ![0, 1].all(i, 1 / i > 5)",
        "[1, 2, 3].exists_one(i, i == 2) && [1, 2, 3].filter(i, i > 1) == [2, 3] && [1, 2].map(i, i * 2) == [2, 4]",
        "[1, 2, 3].map(i, i > 1, i * 2) == [4, 6]",
        "{'a': 1, 'b': 2}.all(k, k != 'c') && {'a': 1}.exists(k, v, v == 1)",
        "['x', 'y'].transformList(i, v, i > 0, v) == ['y'] && {'a': 1}.transformMapEntry(k, v, {string(v): k}) == {'1': 'a'}",
        # Texts
        "'hello'.charAt(1) == 'e' && 'hello'.charAt(5) == ''",
        "'tacocat'.indexOf('ac', 3) == -1 && 'tacocat'.indexOf('a', 3) == 5",
        "'tacocat'.lastIndexOf('a') == 5 && 'tacocat'.lastIndexOf('a', 4) == 1 && 'abc'.indexOf('') == 0",
        "'TacoCat'.lowerAscii() == 'tacocat' && 'TacoCÆt'.upperAscii() == 'TACOCÆT'",
        "'hello hello'.replace('he', 'we', 1) == 'wello hello' && 'ab'.replace('', '-') == '-a-b-'",
        "'aa'.replace('a', 'b', 0) == 'aa'",
        "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.split('') == ['a', 'b', 'c'] && 'a'.split(',', 0) == []",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && '  x '.trim() == 'x'",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && strings.quote('a\"b') == '\"a\\\\\"b\"'",
        "'%s|%d|%b|%x|%X|%o|%%'.format(['a', 5, 5, 255, 'Hi', 8]) == 'a|5|101|ff|4869|10|%'",
        "'%.2f'.format([1.005]) == '1.00' && '%s'.format([[1, 2]]) == '[1, 2]'",
        "'%s'.format([{'b': 1, 'a': null}]) == '{\"a\":null, \"b\":1}'",
        "'abc'.matches('^a.c$') && !'abc'.matches('^b')",
        "'abc 123'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        "'é'.size() == 1 && bytes('é').size() == 2 && string(b'\\xc3\\xa9') == 'é'",
        # Lists and sets
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && ['a'].indexOf('b') == -1",
        "[1.5, 2.5].sum() == 4.0 && [duration('1m'), duration('1s')].sum() == duration('61s') && [].sum() == 0",
        "['b', 'a'].min() == 'a' && [true, false].max() && ![2, 1].isSorted()",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1])",
        "sets.intersects([1], [1, 2]) && !sets.intersects([1], [2])",
        "[3, 1].sort() == [1, 3] && [1, 2].reverse() == [2, 1] && [1, 1].distinct() == [1] && lists.range(3) == [0, 1, 2]",
        "['bb', 'a'].sortBy(x, x.size()) == ['a', 'bb'] && [{'s': 2}, {'s': 1}].sortBy(x, x.s).map(x, x.s) == [1, 2]",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && [optional.of(1), optional.none()].unwrapOpt() == [1]",
        "[[1], [2]].flatten() == [1, 2] && [1, 2, 3].slice(1, 3) == [2, 3]",
        # Optional values
        "x.?a.hasValue() && !x.?b.hasValue() && x.?a.orValue(2) == 1 && x.?b.or(optional.of(3)).value() == 3",
        "optional.ofNonZeroValue('') == optional.none() && [1][?0].value() == 1 && {'a': 1}[?'b'] == optional.none()",
        "x.?a.optMap(v, v + 1).value() == 2 && x.?a.optFlatMap(v, optional.of(v)).hasValue() && [?x.?b, ?x.?a] == [1]",
        "{?'k': x.?b}.size() == 0 && {?'k': x.?a} == {'k': 1}",
        # Times
        "timestamp('2026-01-02T03:04:05.5Z') + duration('1.5s') == timestamp('2026-01-02T03:04:07Z')",
        "timestamp('2026-03-01T00:00:00Z').getMonth() == 2 && timestamp('2026-03-01T00:00:00Z').getDayOfWeek() == 0",
        "timestamp('2026-03-01T00:30:00Z').getHours('-01:00') == 23",
        "timestamp('2026-06-01T12:00:00Z').getHours('Europe/Berlin') == 14",
        "string(duration('1h30m')) == '5400s' && string(timestamp(0)) == '1970-01-01T00:00:00Z'",
        "int(duration('1ms')) == 1000000",
        "duration('-1.5h').getMinutes() == -90 && duration('1ms').getMilliseconds() == 1",
        # Quantities
        "quantity('1.5G').asInteger() == 1500000000 && quantity('50m').asApproximateFloat() == 0.05",
        "!quantity('1.5').isInteger()",
        "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('50k').add(20) == quantity('50020')",
        "sign(quantity('-1')) == -1",
        "isQuantity('1.3Gi') && !isQuantity('200K') && !isQuantity('Three') && !isQuantity('1,3G')",
        # URLs
        "isURL('https://a.example:80/p?q=1') && isURL('/absolute/path') && !isURL('../relative')",
        "!isURL('https://a:b/') && !isURL('')",
        "url('https://user@a.example:80/p a?k=1&k=2').getQuery() == {'k': ['1', '2']}",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
        "url('/x').getScheme() == ''",
        "url('https://a.example/with space/').getEscapedPath() == '/with%20space/'",
        # Addresses
        "isIP('::1') && !isIP('::ffff:1.2.3.4') && !isIP('127.0.0.256') && !isIP('010.0.0.1') && !isIP('fe80::1%eth0')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD') && string(ip('::1')) == '::1'",
        "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
        "ip('ff02::1').isLinkLocalMulticast()",
        "ip('169.254.1.1').isLinkLocalUnicast() && ip('192.168.0.1').isGlobalUnicast()",
        "!ip('255.255.255.255').isGlobalUnicast()",
        "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')",
        "!cidr('192.168.1.0/24').containsCIDR(cidr('192.168.2.0/24'))",
        "cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('192.168.0.1/24') != cidr('192.168.0.0/24')",
        "isCIDR('::1/128') && !isCIDR('::1/129') && !isCIDR('10.0.0.0') && cidr('10.0.0.0/8').ip() == ip('10.0.0.0')",
        # Versions and formats
        "semver('1.2.3-a.1').isLessThan(semver('1.2.3')) && semver('1.0.0+x') == semver('1.0.0')",
        "semver('1.10.0').minor() == 10",
        "isSemver('v1.0', true) && !isSemver('v1.0') && isSemver('01.01.01', true) && !isSemver('1.0')",
        "format.named('uuid').value().validate('nope') == optional.of(['does not match the UUID format'])",
        "!format.dns1123Label().validate('a-b').hasValue() && format.dns1123Label().validate('A').hasValue()",
        "!format.labelValue().validate('').hasValue() && !format.dns1123LabelPrefix().validate('a-').hasValue()",
        "!format.uri().validate('https://a.example').hasValue() && format.date().validate('2026-13-01').hasValue()",
        "format.named('nope') == optional.none()",
        # Types
        "type(1) == int && type(1u) == uint && type(null) == null_type",
        "type([]) == list && type(x) == map && type(type(1)) == type",
        "type(timestamp(0)) == google.protobuf.Timestamp && type(quantity('1')) == kubernetes.Quantity",
        "type(ip('::1')) == net.IP",
    ],
)  # fmt: skip
def test_expression_is_true(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("-9223372036854775807 - 2", "integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("[1][1]", "index out of bounds: 1"),
        ("{'a': 1}['b']", "no such key: b"),
        ("x.b", "no such key: b"),
        ("'abc'.substring(4)", "index out of range: 4"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("[].min()", "min called on empty list"),
        ("optional.none().value()", "optional.none() dereference"),
        ("quantity('x')", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'),
        ("x.a.size()", "no such overload"),
        ("x + 1", "no such overload"),
        ("'%d'.format(['a'])", "error during formatting: integer clause can only be used on integers, was given string"),
        ("'%s'.format([])", "index 0 out of range"),
        ("int('x')", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("{'a': 1, 'a': 2}", "Failed with repeated key: a"),
    ],
)
def test_expression_fails(expression: str, message: str) -> None:
    assert evaluate(expression) == EvaluationError(message)
