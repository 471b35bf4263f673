"""A second decoder of TWP/1, written from docs/protocol.md alone; sections in brackets are its.

It reads one JSON object a line: what is to be decoded, and what the first decoder made of it
(`null` where that refused it). Whatever it sees otherwise is printed, and ends it with status 1.
Nothing but the standard library is used.
"""

import hashlib
import hmac
import json
import sys

VERSION = 0x54570001
# Laid out alike, and higher.
TRIAL = 0x54570A0A
CODES_OF_FIRST_BYTE = {0xC1: "hello", 0xC2: "retry", 0xC3: "accept", 0xC4: "refuse", 0xC5: "version"}
FRAGMENT_LEN = 1120


class Refused(Exception):
    """The bytes are none of the protocol's."""


def check(is_so):
    """Refuses what breaks a rule."""
    if not is_so:
        raise Refused


def known_version(reader):
    number = reader.number(4)
    check(number in (VERSION, TRIAL))
    return number


class Reader:
    """Takes bytes from the front."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def left(self):
        return len(self.data) - self.at

    def take(self, count):
        check(self.left() >= count)
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size):
        return int.from_bytes(self.take(size), "big")

    def rest(self):
        return self.take(self.left())

    def varint(self):
        """LEB128 of 1 or 2 bytes, in its shortest form [6.1]."""
        low = self.number(1)
        if low < 0x80:
            return low
        high = self.number(1)
        check(0 < high < 0x80)
        return (low & 0x7F) | high << 7


def padded_id(reader, lengths):
    """A connection id in 8 bytes behind its length, padded with zeros."""
    length = reader.number(1)
    field = reader.take(8)
    check(length in lengths)
    check(not any(field[length:]))
    return field[:length]


# Section 2.


def first_byte(byte):
    if 0x40 <= byte <= 0x7F:
        return "packet"
    if 0x80 <= byte <= 0xBF:
        return "mesh"
    return CODES_OF_FIRST_BYTE.get(byte, "nothing")


# Section 3.


def hello(data):
    check(len(data) == 1200)
    reader = Reader(data)
    check(reader.number(1) == 0xC1)
    version_used = known_version(reader)
    highest = reader.number(4)
    check(highest >= version_used)
    app_id = reader.take(8)
    hello_id = reader.take(8)
    suites = reader.number(2)
    check(suites & 1)
    client_id = padded_id(reader, range(0, 9))
    ephemeral = reader.take(65)
    check(ephemeral[0] == 4)
    cookie_len = reader.number(1)
    cookie = reader.take(32)
    check(cookie_len == 32 or (cookie_len == 0 and not any(cookie)))
    mac = reader.take(16)
    token_len = reader.number(2)
    check(token_len <= 1000)
    token = reader.take(token_len)
    check(not any(reader.rest()))
    if token_len > 0:
        mode = "token"
    elif any(mac):
        mode = "peer"
        check(len(client_id) >= 4)
    else:
        mode = "open"
    return {
        "version": version_used,
        "version_max": highest,
        "app_id": app_id.hex(),
        "hello_id": hello_id.hex(),
        "suites": suites,
        "client_cid": client_id.hex(),
        "ephemeral": ephemeral.hex(),
        "cookie": cookie.hex() if cookie_len else None,
        "psk_mac": mac.hex(),
        "token": token.hex(),
        "mode": mode,
    }


def retry(data):
    check(len(data) == 45)
    reader = Reader(data)
    check(reader.number(1) == 0xC2)
    return {
        "version": known_version(reader),
        "hello_id": reader.take(8).hex(),
        "cookie": reader.take(32).hex(),
    }


def accept(data):
    reader = Reader(data)
    check(reader.number(1) == 0xC3)
    version_used = known_version(reader)
    hello_id = reader.take(8)
    suite = reader.number(1)
    check(suite in (1, 2, 3))
    server_id = padded_id(reader, (4, 8))
    # Whether it is a point shows where the keys are agreed on.
    ephemeral = reader.take(65)
    length = reader.number(2)
    check(reader.left() == length)
    return {
        "version": version_used,
        "hello_id": hello_id.hex(),
        "suite": suite,
        "server_cid": server_id.hex(),
        "ephemeral": ephemeral.hex(),
        "sealed_len": length,
    }


def accept_body(data):
    reader = Reader(data)
    form = reader.number(1)
    check(form in (0, 1, 2))
    key = reader.take({0: 0, 1: 145, 2: 65}[form])
    if form == 1:
        check(key[0] == 1)
    parameters = reader.take(40)
    signature = reader.take(64)
    check(reader.left() == 0)
    return {"form": form, "key": key.hex(), "params": parameters.hex(), "signature": signature.hex()}


def refuse(data):
    check(len(data) == 31)
    reader = Reader(data)
    check(reader.number(1) == 0xC4)
    return {
        "version": known_version(reader),
        "hello_id": reader.take(8).hex(),
        "reason": reader.number(2),
        "mac": reader.take(16).hex(),
    }


def version(data):
    reader = Reader(data)
    check(reader.number(1) == 0xC5)
    hello_id = reader.take(8)
    count = reader.number(1)
    check(1 <= count <= 8)
    versions = [reader.number(4) for _ in range(count)]
    check(reader.left() == 0)
    return {"hello_id": hello_id.hex(), "versions": versions}


def params(data):
    reader = Reader(data)
    idle = reader.number(4)
    check(2_000 <= idle <= 120_000)
    ack_delay = reader.number(1)
    keepalive = reader.number(2)
    check(200 <= keepalive <= 20_000)
    datagram_max = reader.number(2)
    check(datagram_max >= 1_200)
    receive_window = reader.number(4)
    check(reader.number(2) == 1_024)
    channels = reader.number(1)
    check(1 <= channels <= 32)
    check(reader.number(1) == 0)
    boot_id = reader.take(7)
    reset = reader.take(16)
    check(reader.left() == 0)
    return {
        "idle_timeout": idle,
        "ack_delay_max": ack_delay,
        "keepalive": keepalive,
        "datagram_max": datagram_max,
        "receive_window": receive_window,
        "channels": channels,
        "boot_id": boot_id.hex(),
        "reset": reset.hex() if any(reset) else None,
    }


# Section 4.


def extract(salt, secret):
    return hmac.new(salt, secret, hashlib.sha256).digest()


def expand(secret, label, context, length):
    label = label.encode()
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    out, block, count = b"", b"", 0
    while len(out) < length:
        count += 1
        block = hmac.new(secret, block + info + bytes([count]), hashlib.sha256).digest()
        out += block
    return out[:length]


def initial(psk):
    return extract(hashlib.sha256(b"tickwire udp 1").digest(), psk or bytes(32))


def hello_mac(data, psk):
    """The PSK mac that this HELLO should have [3.1]."""
    check(len(data) == 1200)
    hello0 = data[:101] + bytes(33) + data[134:]
    token_len = int.from_bytes(data[150:152], "big")
    check(token_len <= 1000)
    covered = hello0[:134] + data[150 : 152 + token_len]
    key = expand(initial(psk), "tw1 hello", b"", 32)
    return hmac.new(key, covered, hashlib.sha256).digest()[:16].hex()


def refuse_mac(data, psk):
    """The mac that this REFUSE should have [3.4]."""
    key = expand(initial(psk), "tw1 refuse", b"", 32)
    return hmac.new(key, data[:15], hashlib.sha256).digest()[:16].hex()


def traffic(data, shared, psk, hello_bytes, key_len):
    """The key of an ACCEPT, the first two of both directions, and one for a layer above."""
    hello0 = hello_bytes[:101] + bytes(33) + hello_bytes[134:]
    s1 = extract(expand(initial(psk), "tw1 derived", b"", 32), shared)
    th0 = hashlib.sha256(hello0 + data[:90]).digest()
    th1 = hashlib.sha256(hello0 + data).digest()
    s2 = extract(expand(s1, "tw1 derived", b"", 32), bytes(32))
    out = {"accept": [expand(s1, "tw1 accept key", th0, key_len).hex()]}
    out["accept"].append(expand(s1, "tw1 accept iv", th0, 12).hex())
    for side, label in (("client", "tw1 c traffic"), ("server", "tw1 s traffic")):
        secret = expand(s2, label, th1, 32)
        out[side] = []
        for _ in range(2):
            out[side].append(expand(secret, "tw1 key", b"", key_len).hex())
            out[side].append(expand(secret, "tw1 iv", b"", 12).hex())
            secret = expand(secret, "tw1 update", b"", 32)
    exporter = expand(s2, "tw1 exporter", th1, 32)
    out["exported"] = expand(exporter, "tw1 test", b"context", 32).hex()
    return out


# Section 5.


def token(data):
    """What is clear of a sealed token."""
    check(143 <= len(data) <= 788)
    reader = Reader(data)
    check(reader.number(1) == 1)
    return {
        "key_id": reader.number(4),
        "token_id": reader.take(16).hex(),
        "expires_at": reader.number(8),
    }


# Section 6.


def header(data, id_len):
    reader = Reader(data)
    first = reader.number(1)
    check(first & 0xC0 == 0x40)
    check(first & 0x0F == 0)
    connection_id = reader.take(id_len)
    number = reader.take(4 if first & 0x10 else 2)
    check(reader.left() >= 4 + 16)
    return {"key_phase": first >> 5 & 1, "cid": connection_id.hex(), "number": number.hex()}


def widen(data, expected):
    """The number nearest to the expected one that ends in these bytes, of two the higher."""
    step = 1 << 8 * len(data)
    low = int.from_bytes(data, "big")
    base = expected - expected % step + low
    near = [number for number in (base - step, base, base + step) if 0 <= number < 1 << 62]
    return min(near, key=lambda number: (abs(number - expected), -number))


def nonce(data, number):
    """iv XOR (4 zero bytes | packet number 8)."""
    return bytes(a ^ b for a, b in zip(data, bytes(4) + number.to_bytes(8, "big"))).hex()


def ack(reader, size):
    largest = reader.take(size)
    delay = reader.number(2)
    run = reader.varint()
    check(run <= 1_023)
    count = reader.number(1)
    check(count <= 128)
    bits = reader.take(count)
    check(count == 0 or bits[-1] != 0)
    # Distances below the largest that are reported, itself being 0.
    reported = list(range(run + 1))
    gap = run + 1
    for index in range(8 * count):
        if bits[index // 8] >> index % 8 & 1:
            reported.append(gap + index + 1)
    return {"frame": "ack", "largest": largest.hex(), "delay": delay, "reported": reported}


def message(reader, first, table):
    channel = first & 0x1F
    check(channel < len(table))
    delivery, longest = table[channel]
    is_fragment, has_length = bool(first & 0x40), bool(first & 0x20)
    out = {"frame": "msg", "channel": channel, "id": None, "fragment": None}
    if is_fragment or delivery != 0:
        out["id"] = reader.number(2)
    if is_fragment:
        index, count = reader.number(2), reader.number(2)
        out["fragment"] = [index, count]
    data = reader.take(reader.varint()) if has_length else reader.rest()
    if delivery == 0 and out["fragment"] == [0, 1]:
        check(len(data) <= min(FRAGMENT_LEN, longest))
    elif is_fragment:
        check(2 <= count <= -(-longest // FRAGMENT_LEN))
        check(index < count)
        if index + 1 < count:
            check(len(data) == FRAGMENT_LEN)
        else:
            check(1 <= len(data) <= min(FRAGMENT_LEN, longest - index * FRAGMENT_LEN))
    else:
        check(len(data) <= longest)
    out["data"] = data.hex()
    return out


def frame(reader, table):
    first = reader.number(1)
    if first >= 0x80:
        return message(reader, first, table)
    if first == 0x00:
        return None
    if first == 0x01:
        return {"frame": "ping"}
    if first == 0x02:
        return ack(reader, 2)
    if first == 0x03:
        return ack(reader, 4)
    if first == 0x04:
        code, length = reader.number(2), reader.number(1)
        check(length <= 128)
        return {"frame": "close", "code": code, "reason": reader.take(length).hex()}
    if first == 0x05:
        return {"frame": "path_challenge", "data": reader.take(8).hex()}
    if first == 0x06:
        return {"frame": "path_response", "data": reader.take(8).hex()}
    if first == 0x07:
        return {"frame": "window", "credit": reader.number(6)}
    if first == 0x08:
        return {"frame": "confirm", "params": reader.take(40).hex(), "digest": reader.take(16).hex()}
    if first == 0x09:
        return {"frame": "time", "data": reader.take(4).hex()}
    if first == 0x0A:
        return {"frame": "identity", "key": reader.take(65).hex(), "signature": reader.take(64).hex()}
    raise Refused


def frames(data, table):
    """Every frame up to the first that cannot be read, and whether that was the end."""
    reader, out = Reader(data), []
    try:
        while reader.left():
            one = frame(reader, table)
            if one is not None:
                out.append(one)
    except Refused:
        return {"frames": out, "is_whole": False}
    return {"frames": out, "is_whole": True}


# Section 9.2.


def reset(data, expected):
    """Whether this ends the session whose reset token that is."""
    return len(data) >= 38 and data[-16:] == expected


def reset_token(data, node, connection_id):
    return expand(data, "tw1 reset", node + connection_id, 32)[:16].hex()


def decode(line):
    """What this decoder makes of a line."""
    kind, data = line["kind"], bytes.fromhex(line["hex"])

    def more(name):
        return bytes.fromhex(line[name])

    if kind == "frames":
        return frames(data, line["table"])
    if kind == "header":
        return header(data, line["cid_len"])
    if kind == "first_byte":
        return first_byte(data[0])
    if kind == "widen":
        return widen(data, line["expected"])
    if kind == "nonce":
        return nonce(data, line["number"])
    if kind == "reset":
        return reset(data, more("token"))
    if kind == "reset_token":
        return reset_token(data, more("node"), more("cid"))
    if kind == "hello_mac":
        return hello_mac(data, more("psk"))
    if kind == "refuse_mac":
        return refuse_mac(data, more("psk"))
    if kind == "traffic":
        return traffic(data, more("shared"), more("psk"), more("hello"), line["key_len"])
    plain = {
        "hello": hello,
        "retry": retry,
        "accept": accept,
        "accept_body": accept_body,
        "refuse": refuse,
        "version": version,
        "params": params,
        "token": token,
    }
    return plain[kind](data)


def main():
    tally, disagreements = {}, 0
    for text in sys.stdin:
        line = json.loads(text)
        try:
            ours = decode(line)
        except Refused:
            ours = None
        is_taken = ours is not None and ours is not False and ours != []
        if isinstance(ours, dict) and "is_whole" in ours:
            is_taken = ours["is_whole"]
        counts = tally.setdefault(line["kind"], [0, 0])
        counts[0 if is_taken else 1] += 1
        if ours != line["first"]:
            disagreements += 1
            if disagreements <= 10:
                print(f"{text.rstrip()}\n  is to this decoder {json.dumps(ours)}")
    for kind, (taken, refused) in sorted(tally.items()):
        print(f"{kind}: {taken} taken, {refused} refused")
    print(f"{sum(map(sum, tally.values()))} decoded, {disagreements} otherwise")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
