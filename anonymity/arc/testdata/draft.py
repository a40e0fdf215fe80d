#!/usr/bin/env python3
"""Makes draft-limits.json: presentations under limits that the vectors of
draft-ietf-privacypass-arc-crypto do not have, by the draft's text and proof of concept, with
arithmetic of its own and nothing of ours.

    draft.py arc-p256-vectors.json >draft-limits.json

It first makes the two presentations of the draft's vectors, and stops where a byte differs.
"""

import hashlib
import json
import sys

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
A, B = P - 3, 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
     0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)
SUITE = b"ARCV1-P256"


def add(p, q):
    if p is None or q is None:
        return p or q
    if p[0] == q[0]:
        if (p[1] + q[1]) % P == 0:
            return None
        m = (3 * p[0] * p[0] + A) * pow(2 * p[1], -1, P) % P
    else:
        m = (q[1] - p[1]) * pow(q[0] - p[0], -1, P) % P
    x = (m * m - p[0] - q[0]) % P
    return x, (m * (p[0] - x) - p[1]) % P


def mul(k, p):
    k, r = k % N, None
    while k:
        if k & 1:
            r = add(r, p)
        p, k = add(p, p), k >> 1
    return r


def root(x):
    return pow(x, (P + 1) // 4, P)


def encode(p):
    return bytes([2 + p[1] % 2]) + p[0].to_bytes(32, "big")


def decode(b):
    x = int.from_bytes(b[1:], "big")
    y = root(x**3 + A * x + B)
    assert (y * y - x**3 - A * x - B) % P == 0
    return x, y if y % 2 == b[0] % 2 else P - y


def scalar(k):
    return (k % N).to_bytes(32, "big")


def expand(msg, tag, size):  # RFC 9380, 5.3.1
    tag += bytes([len(tag)])
    first = hashlib.sha256(bytes(64) + msg + size.to_bytes(2, "big") + b"\0" + tag).digest()
    b, all = bytes(32), b""
    for i in range(1, size // 32 + 1):
        b = hashlib.sha256(bytes(x ^ y for x, y in zip(first, b)) + bytes([i]) + tag).digest()
        all += b
    return all


def to_curve(u):  # RFC 9380, F.2 in the plain form of 6.6.2
    z = P - 10
    t = (pow(z, 2, P) * pow(u, 4, P) + z * u * u) % P
    x = -B * pow(A, -1, P) * (1 + pow(t, -1, P)) % P
    y2 = (x**3 + A * x + B) % P
    if pow(y2, (P - 1) // 2, P) != 1:
        x = z * u * u * x % P
        y2 = (x**3 + A * x + B) % P
    y = root(y2)
    return x, y if y % 2 == u % 2 else P - y


def hash_to_group(msg, info):
    b = expand(msg, b"HashToGroup-" + SUITE + info, 96)
    return add(*(to_curve(int.from_bytes(b[i:i + 48], "big") % P) for i in (0, 48)))


H = hash_to_group(encode(G), b"generatorH")


def bases(limit):
    n = (limit - 1).bit_length()  # ceil(log2(limit))
    all = [2**i for i in range(n - 1)]
    return sorted(all + [limit - sum(all) - 1], reverse=True)


def prove(equations, elements, witness, draw):
    """The older Fiat-Shamir that ARC's vectors have; compact: challenge and responses."""
    word = lambda n: n.to_bytes(4, "little")
    label = word(len(equations))
    for image, terms in equations:
        label += word(image) + word(len(terms)) + b"".join(word(s) + word(e) for s, e in terms)
    label += b"".join(map(encode, elements))
    secrets = [draw() for _ in witness]
    commitments = []
    for _, terms in equations:
        c = None
        for s, e in terms:
            c = add(c, mul(secrets[s], elements[e]))
        commitments.append(encode(c))
    session = SUITE + b"CredentialPresentation"
    size = lambda b: len(b).to_bytes(4, "big") + b
    state = hashlib.shake_128(b"sigma-proofs_Shake128_P256".ljust(168, b"\0") + size(session) + size(label) + b"".join(commitments))
    challenge = int.from_bytes(state.digest(48), "big") % N
    return scalar(challenge) + b"".join(scalar(k + w * challenge) for k, w in zip(secrets, witness))


def present(m1, U0, UPrime0, X1, context, nonce, limit, draw, draw_proof):
    a, r, z = draw(), draw(), draw()
    U = mul(a, U0)
    U_prime_commit = add(mul(a, UPrime0), mul(r, G))
    m1_commit = add(mul(m1, U), mul(z, H))
    nonce_blinding = draw()
    nonce_commit = add(mul(nonce, G), mul(nonce_blinding, H))
    T = hash_to_group(context, b"Tag")
    tag = mul(pow(m1 + nonce, -1, N), T)
    V = add(mul(z, X1), mul(N - r, G))

    b, rest = [], nonce
    for base in bases(limit):
        b.append(1 if rest >= base else 0)
        rest -= b[-1] * base
    assert rest == 0
    s, partial = [], 0
    for base in bases(limit)[:-1]:
        s.append(draw())
        partial += base * s[-1]
    s.append(pow(bases(limit)[-1], -1, N) * (nonce_blinding - partial) % N)
    D = [add(mul(x, G), mul(y, H)) for x, y in zip(b, s)]

    # G, H, U, UPrimeCommit, m1Commit, V, X1, tag, T, nonceCommit; m1, z, -r, nonce, blinding
    elements = [G, H, U, U_prime_commit, m1_commit, V, X1, tag, T, nonce_commit]
    equations = [(4, [(0, 2), (1, 1)]), (5, [(1, 6), (2, 0)]), (9, [(3, 0), (4, 1)]), (8, [(0, 7), (3, 7)])]
    first, n = 9, len(b)
    if n > 1 or D[0] != nonce_commit:
        first = 10
        elements += D
    for i in range(n):
        equations.append((first + i, [(5 + i, 0), (5 + n + i, 1)]))
        equations.append((first + i, [(5 + i, first + i), (5 + 2 * n + i, 1)]))
    witness = [m1, z, -r, nonce, nonce_blinding] + b + s + [(1 - x) * y for x, y in zip(b, s)]
    proof = prove(equations, elements, witness, draw_proof)
    return b"".join(map(encode, [U, U_prime_commit, m1_commit, tag, nonce_commit] + D)) + proof


def stream(seed):
    """Numbers of 48 bytes from SHAKE128, without end for what is needed here."""
    all = hashlib.shake_128(seed).digest(48 * 4096)
    return (int.from_bytes(all[i:i + 48], "big") for i in range(0, len(all), 48))


def main():
    v = json.load(open(sys.argv[1]))["ARCV1-P256"]
    c = {k: bytes.fromhex(x) for k, x in v["Credential"].items()}
    own = int.from_bytes(c["m1"], "big"), decode(c["U"]), decode(c["U_prime"]), decode(c["X1"])
    # The draft's generator: key, request and response take 4 + 4 + 3 + 4 + 1 + 7 first.
    numbers = stream(b"sigma-proofs/TestDRNG/SHAKE128".ljust(168, b"\0") + b"test vector seed".ljust(32, b"\0"))
    for _ in range(4 + 3 + 4 + 1 + 7):
        next(numbers)
    for nonce, x in enumerate([v["Presentation1"], v["Presentation2"]]):
        made = present(*own, bytes.fromhex(x["presentation_context"]), nonce, 2,
                       lambda: next(numbers) % (N - 1), lambda: next(numbers) % N)
        want = "".join(x[k] for k in ["U", "U_prime_commit", "m1_commit", "tag", "nonce_commit", "proof"])
        assert made.hex() == want, "other bytes than the draft's vectors"
    key, out = v["ServerKey"], []
    context = bytes.fromhex(v["Presentation1"]["presentation_context"])
    for limit, nonce in [(2, 0), (2, 1), (3, 0), (3, 2), (4, 3), (5, 4), (6, 3), (10, 0), (10, 7), (10, 9), (100, 63), (100, 99)]:
        seed = "starling draft limits %d %d" % (limit, nonce)
        numbers = stream(seed.encode())
        draw = lambda: next(numbers) % N
        out.append({"Limit": limit, "Number": nonce, "Seed": seed, "Presentation": present(*own, context, nonce, limit, draw, draw).hex()})
    json.dump({
        "PrivateKey": key["x0"] + key["x1"] + key["x2"] + key["xb"], "RequestContext": v["CredentialRequest"]["request_context"],
        "Credential": "".join(c[k].hex() for k in ["m1", "U", "U_prime", "X1"]),
        "PresentationContext": context.hex(), "Presentations": out}, sys.stdout, indent=1)
    print()


main()
