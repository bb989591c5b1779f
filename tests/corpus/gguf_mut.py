"""Writes malformed GGUF and safetensors files, with a manifest of what must become of each.

Usage: gguf_mut.py OUTDIR

Needs nothing but Python. The manifest lists for every file what is expected: `ok` (loads and answers), `err`
(refused with a message), `err_or_ok` (either, but nothing worse), `err_on_render` (may load; rendering its chat
template must fail or end within its budget). Never acceptable: a panic, a crash, a hang, memory the file cannot
justify.
"""

import json
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
S = lambda b: struct.pack('<Q', len(b)) + b


def kv(k, t, v):
    return S(k) + struct.pack('<I', t) + v


u32 = lambda x: struct.pack('<I', x & 0xFFFFFFFF)
u64 = lambda x: struct.pack('<Q', x & (2**64 - 1))
f32 = lambda x: struct.pack('<f', x)


def arr(t, items, n=None):
    return u32(t) + u64(len(items) if n is None else n) + b''.join(items)


V = 16
E = 32


def base_kv():
    toks = [b'<unk>', b'<s>', b'</s>'] + [bytes([97 + i]) for i in range(V - 3)]
    return [
        (b'general.architecture', STR, S(b'llama')),
        (b'general.alignment', U32, u32(32)),
        (b'llama.block_count', U32, u32(1)),
        (b'llama.context_length', U32, u32(64)),
        (b'llama.embedding_length', U32, u32(E)),
        (b'llama.feed_forward_length', U32, u32(64)),
        (b'llama.attention.head_count', U32, u32(4)),
        (b'llama.attention.head_count_kv', U32, u32(2)),
        (b'llama.attention.layer_norm_rms_epsilon', F32, f32(1e-5)),
        (b'llama.rope.dimension_count', U32, u32(8)),
        (b'tokenizer.ggml.model', STR, S(b'gpt2')),
        (b'tokenizer.ggml.tokens', ARR, arr(STR, [S(t) for t in toks])),
        (b'tokenizer.ggml.token_type', ARR, arr(I32, [struct.pack('<i', 1)] * V)),
        (b'tokenizer.ggml.merges', ARR, arr(STR, [S(b'a b'), S(b'c d')])),
        (b'tokenizer.ggml.bos_token_id', U32, u32(1)),
        (b'tokenizer.ggml.eos_token_id', U32, u32(2)),
        (b'tokenizer.chat_template', STR, S(b"{% for m in messages %}{{ m.content }}{% endfor %}")),
    ]


def base_t():
    sh = [
        ('token_embd.weight', [E, V]),
        ('output_norm.weight', [E]),
        ('output.weight', [E, V]),
        ('blk.0.attn_norm.weight', [E]),
        ('blk.0.ffn_norm.weight', [E]),
        ('blk.0.attn_q.weight', [E, E]),
        ('blk.0.attn_k.weight', [E, 16]),
        ('blk.0.attn_v.weight', [E, 16]),
        ('blk.0.attn_output.weight', [E, E]),
        ('blk.0.ffn_gate.weight', [E, 64]),
        ('blk.0.ffn_up.weight', [E, 64]),
        ('blk.0.ffn_down.weight', [64, E]),
    ]
    return [dict(name=n.encode(), dims=d, type=0, off=None) for n, d in sh]


def build(
    kvs,
    ts,
    magic=b'GGUF',
    ver=3,
    nt=None,
    nkv=None,
    align=32,
    data=None,
    rawkv=None,
    tail=b'',
    namefn=None,
    ndims=None,
):
    h = magic + u32(ver) + u64(len(ts) if nt is None else nt) + u64(len(kvs) if nkv is None else nkv)
    b = h + (rawkv if rawkv is not None else b''.join(kv(*x) for x in kvs))
    off = 0
    for t in ts:
        n = 1
        for d in t['dims']:
            n *= d
        sz = n * 4 if n < 2**30 else 0
        o = off if t['off'] is None else t['off']
        b += (
            S(t['name'])
            + u32(len(t['dims']) if t.get('nd') is None else t['nd'])
            + b''.join(u64(d) for d in t['dims'])
            + u32(t['type'])
            + u64(o)
        )
        off += (sz + 31) // 32 * 32
    b += b'\0' * ((-len(b)) % max(align, 1) if align < 4096 else 0)
    return b + (struct.pack('<f', 0.01) * (off // 4) if data is None else data) + tail


C = []


def add(name, b, expect, why):
    C.append((name, b, expect, why))


def setkv(k, t, v):
    r = [x for x in base_kv() if x[0] != k]
    return r + [(k, t, v)]


def delkv(k):
    return [x for x in base_kv() if x[0] != k]


def mt(i, **kw):
    t = base_t()
    t[i].update(kw)
    return t


def gen():
    K, T = base_kv(), base_t()
    good = build(K, T)
    add('00_good', good, 'ok', 'control')
    # header
    add('h01_empty', b'', 'err', '0 bytes')
    add('h02_magic_only', b'GGUF', 'err', '4 bytes')
    add('h03_bad_magic', b'GGUX' + good[4:], 'err', 'magic')
    add('h04_ggml_legacy', b'lmgg' + good[4:], 'err', 'legacy')
    for v in (0, 1, 4, 0x03000000, 0xFFFFFFFF):
        add(f'h05_version_{v:x}', build(K, T, ver=v), 'err', 'version / other endian')
    for n in (2**64 - 1, 2**63, 2**61, 2**32, 10**9):
        add(f'h06_ntensors_{n:x}', build(K, T, nt=n), 'err', 'n_tensors count overflow / alloc bomb')
        add(f'h07_nkv_{n:x}', build(K, T, nkv=n), 'err', 'n_kv count overflow / alloc bomb')
    add('h08_nkv_minus1', build(K, T, nkv=len(K) - 1), 'err', 'kv under-count: next bytes misparsed')
    add('h09_nt_zero', build(K, T, nt=0), 'err', 'no tensors: model incomplete')
    # strings
    for n in (2**64 - 1, 2**63, 2**40, len(good) + 1):
        add(
            f's01_keylen_{n:x}',
            build(K, T, rawkv=u64(n) + b'general.architecture' + b''.join(kv(*x) for x in K[1:])),
            'err',
            'key length',
        )
    add('s02_key_nonutf8', build(K + [(b'\xff\xfe\x80', U32, u32(1))], T), 'err', 'non-UTF-8 key')
    add('s03_key_empty', build(K + [(b'', U32, u32(1))], T), 'err', 'empty key')
    add('s04_key_nul', build(K + [(b'a\0b', U32, u32(1))], T), 'err_or_ok', 'NUL in key')
    add('s05_key_dup', build(K + [K[0]], T), 'err', 'duplicate key')
    add('s06_key_70000', build(K + [(b'k' * 70000, U32, u32(1))], T), 'err', 'key > 65535')
    add(
        's07_val_nonutf8',
        build(setkv(b'general.name', STR, S(b'\xff\xff')), T),
        'err_or_ok',
        'non-UTF-8 value',
    )
    add(
        's08_vallen_huge',
        build(setkv(b'general.name', STR, u64(2**62) + b'x'), T),
        'err',
        'string value length',
    )
    # kv types / arrays
    add('k01_type_13', build(K + [(b'x', 13, u32(0))], T), 'err', 'unknown value type')
    add('k02_type_neg', build(K + [(b'x', 0xFFFFFFFF, u32(0))], T), 'err', 'negative type')
    add('k03_bool_2', build(K + [(b'x', BOOL, b'\x02')], T), 'err_or_ok', 'bool not 0/1')
    for n in (2**64 - 1, 2**62, 2**61, 2**31):
        add(
            f'k04_arrlen_{n:x}',
            build(K + [(b'x', ARR, arr(U32, [u32(1)], n))], T),
            'err',
            'array count * size overflow',
        )
        add(
            f'k05_arrstrlen_{n:x}',
            build(K + [(b'x', ARR, arr(STR, [S(b'a')], n))], T),
            'err',
            'string array count',
        )
    add('k06_arr_type_bad', build(K + [(b'x', ARR, arr(99, [u32(1)]))], T), 'err', 'array element type')
    for d in (1, 2, 8, 64, 10000):
        b = arr(U8, [b'\1'])
        for _ in range(d):
            b = u32(ARR) + u64(1) + b
        add(f'k07_nested_{d}', build(K + [(b'x', ARR, b)], T), 'err', 'nested arrays depth (stack overflow)')
    add(
        'k08_nested_wide',
        build(K + [(b'x', ARR, u32(ARR) + u64(2**40) + arr(U8, []))], T),
        'err',
        'nested array count',
    )
    # alignment
    for a in (0, 1, 3, 7, 13, 33, 2**31, 2**32 - 1):
        add(
            f'a01_align_{a:x}',
            build(setkv(b'general.alignment', U32, u32(a)), T, align=max(a, 1)),
            'err_or_ok' if a in (1,) else 'err',
            'alignment zero / not pow2 / huge',
        )
    add('a02_align_u64', build(setkv(b'general.alignment', U64, u64(32)), T), 'err', 'alignment wrong type')
    add('a03_align_str', build(setkv(b'general.alignment', STR, S(b'32')), T), 'err', 'alignment wrong type')
    add('a04_align_i32neg', build(setkv(b'general.alignment', I32, u32(-32)), T), 'err', 'negative')
    # tensors
    add('t01_dupname', build(K, mt(1, name=b'token_embd.weight')), 'err', 'duplicate tensor')
    add('t02_name_empty', build(K, mt(1, name=b'')), 'err', 'empty name')
    add('t03_name_long', build(K, mt(1, name=b'n' * 300)), 'err', 'name > 63')
    add('t04_name_nonutf8', build(K, mt(1, name=b'\xff\xfe')), 'err', 'name not UTF-8')
    for nd in (0, 5, 255, 2**32 - 1):
        add(f't05_ndims_{nd:x}', build(K, mt(0, nd=nd)), 'err', 'n_dims')
    add('t06_dim_zero', build(K, mt(0, dims=[E, 0])), 'err', 'zero dim')
    add('t07_dim_neg', build(K, mt(0, dims=[2**64 - 32, V])), 'err', 'negative dim')
    add('t08_dims_product_wrap', build(K, mt(0, dims=[2**32, 2**32])), 'err', 'dims product = 2^64 -> 0')
    add('t09_dims_wrap_small', build(K, mt(0, dims=[2**63, 2, 1, E * V])), 'err', 'wraps to small')
    add('t10_nbytes_wrap', build(K, mt(0, dims=[2**62])), 'err', 'elements ok, bytes*4 wraps to 0')
    add(
        't10b_pad_wrap',
        build(K, mt(0, dims=[(2**64 - 16) // 4])),
        'err',
        'nbytes near 2^64: pad to alignment wraps',
    )
    add(
        't11_sum_wrap',
        build(
            K,
            [
                dict(name=b'a', dims=[2**61 - 8], type=0, off=0),
                dict(name=b'b', dims=[2**61 - 8], type=0, off=2**63),
            ],
        ),
        'err',
        'sum of sizes wraps (CVE-2026-27940 class)',
    )
    for ty in (4, 5, 31, 36, 255, 2**31, 2**32 - 1):
        add(f't12_type_{ty:x}', build(K, mt(0, type=ty)), 'err', 'removed/unknown ggml type')
    add(
        't13_row_not_multiple', build(K, mt(0, type=2, dims=[33, V])), 'err', 'Q4_0 row not multiple of block'
    )
    add('t14_type_size_lie', build(K, mt(0, type=8)), 'err_or_ok', 'type smaller than region: gaps')
    add('t15_k_quant_row', build(K, mt(0, type=12, dims=[E, V])), 'err', 'Q4_K needs 256')
    for o in (2**64 - 1, 2**64 - 32, 2**63, 2**40, len(good)):
        add(f't16_off_{o:x}', build(K, mt(3, off=o)), 'err', 'offset beyond EOF / wraps')
    add('t17_off_unaligned', build(K, mt(3, off=4)), 'err', 'unaligned offset')
    add('t18_off_overlap', build(K, mt(3, off=0)), 'err', 'overlapping tensors')
    add('t19_off_last_past_eof', build(K, T, data=b'\0' * 64), 'err', 'data truncated (Bleeding Llama class)')
    add('t20_missing_tensor', build(K, T[:-1]), 'err', 'missing ffn_down')
    add('t21_wrong_shape', build(K, mt(5, dims=[E, 8])), 'err', 'attn_q wrong shape')
    add(
        't22_extra_tensor',
        build(K, T + [dict(name=b'foo.bar', dims=[4], type=0, off=None)]),
        'err_or_ok',
        'unknown tensor',
    )
    add('t23_trailing', build(K, T, tail=b'junk' * 100), 'err_or_ok', 'trailing bytes')
    # hyperparameters
    for k, v, w in (
        (b'llama.attention.head_count', 0, 'div by zero'),
        (b'llama.attention.head_count_kv', 0, 'div by zero'),
        (b'llama.attention.head_count_kv', 3, 'not divisor'),
        (b'llama.attention.head_count_kv', 4096, 'kv>q'),
        (b'llama.embedding_length', 0, 'zero'),
        (b'llama.embedding_length', 2**32 - 1, 'alloc bomb'),
        (b'llama.block_count', 0, 'zero layers'),
        (b'llama.block_count', 2**31, 'layer alloc bomb'),
        (b'llama.context_length', 0, 'zero ctx'),
        (b'llama.context_length', 2**32 - 1, 'KV alloc bomb'),
        (b'llama.rope.dimension_count', 9, 'odd rope dim'),
        (b'llama.rope.dimension_count', 2**31, 'rope > head'),
        (b'llama.feed_forward_length', 0, 'zero'),
    ):
        add(
            f'p01_{k.decode().split(".",1)[1]}_{v}',
            build(setkv(k, U32, u32(v)), T),
            'err' if k != b'llama.context_length' or v == 0 else 'err_or_ok',
            w,
        )
    for k in (
        b'general.architecture',
        b'llama.block_count',
        b'llama.embedding_length',
        b'llama.attention.head_count',
    ):
        add('p02_missing_' + k.decode(), build(delkv(k), T), 'err', 'missing key')
    add('p03_arch_unknown', build(setkv(b'general.architecture', STR, S(b'zzz')), T), 'err', 'unknown arch')
    add(
        'p04_arch_path',
        build(setkv(b'general.architecture', STR, S(b'../../etc/passwd%s%n')), T),
        'err',
        'format/path in arch',
    )
    add('p05_key_wrong_type', build(setkv(b'llama.block_count', STR, S(b'1')), T), 'err', 'wrong type')
    add('p06_block_neg', build(setkv(b'llama.block_count', I32, u32(-1)), T), 'err', 'negative')
    for nm, x in (('nan', float('nan')), ('inf', float('inf')), ('neg', -1.0), ('zero', 0.0)):
        add(
            f'p07_eps_{nm}',
            build(setkv(b'llama.attention.layer_norm_rms_epsilon', F32, f32(x)), T),
            'err_or_ok' if nm == 'zero' else 'err',
            'eps',
        )
    add(
        'p08_rope_base_nan',
        build(K + [(b'llama.rope.freq_base', F32, f32(float('nan')))], T),
        'err',
        'rope base',
    )
    # tokenizer
    tk = b'tokenizer.ggml.'
    for k in (b'model', b'tokens', b'merges'):
        add('v01_missing_' + k.decode(), build(delkv(tk + k), T), 'err', 'missing tokenizer key')
    add('v02_tokens_empty', build(setkv(tk + b'tokens', ARR, arr(STR, [])), T), 'err', 'empty vocab')
    add(
        'v03_tokens_not_str',
        build(setkv(tk + b'tokens', ARR, arr(U32, [u32(1)] * V)), T),
        'err',
        'tokens type',
    )
    add(
        'v04_tokens_fewer',
        build(setkv(tk + b'tokens', ARR, arr(STR, [S(b'a%d' % i) for i in range(V - 1)])), T),
        'err',
        'vocab != embd rows',
    )
    add(
        'v05_tokens_more',
        build(setkv(tk + b'tokens', ARR, arr(STR, [S(b'a%d' % i) for i in range(V + 5)])), T),
        'err',
        'token id beyond embd rows (OOB read)',
    )
    add(
        'v06_tokens_dup',
        build(setkv(tk + b'tokens', ARR, arr(STR, [S(b'x')] * V)), T),
        'err_or_ok',
        'duplicate token strings',
    )
    add(
        'v07_type_i8',
        build(setkv(tk + b'token_type', ARR, arr(I8, [b'\1'] * V)), T),
        'err',
        'element type confusion (heap OOB read in llama.cpp)',
    )
    add(
        'v08_type_short',
        build(setkv(tk + b'token_type', ARR, arr(I32, [u32(1)] * 3)), T),
        'err',
        'count mismatch',
    )
    add(
        'v09_type_value',
        build(setkv(tk + b'token_type', ARR, arr(I32, [u32(99)] * V)), T),
        'err_or_ok',
        'unknown token type',
    )
    add(
        'v10_scores_i8',
        build(K + [(tk + b'scores', ARR, arr(I8, [b'\1'] * V))], T),
        'err',
        'scores type confusion',
    )
    for nm, m in (
        ('nosep', b'ab'),
        ('empty', b''),
        ('unknown', b'zz qq'),
        ('nonutf8', b'\xff \xfe'),
        ('many', b'a b c d'),
    ):
        add(
            'v11_merge_' + nm,
            build(setkv(tk + b'merges', ARR, arr(STR, [S(m)])), T),
            'err' if nm in ('nosep', 'empty') else 'err_or_ok',
            'merge',
        )
    add(
        'v12_merges_cycle',
        build(setkv(tk + b'merges', ARR, arr(STR, [S(b'a b'), S(b'ab ab'), S(b'abab abab')])), T),
        'err_or_ok',
        'merge products not in vocab',
    )
    for k in (b'bos_token_id', b'eos_token_id', b'unknown_token_id', b'padding_token_id'):
        for v in (V, 2**31, 2**32 - 1):
            add(
                f'v13_{k.decode()}_{v:x}',
                build(setkv(tk + k, U32, u32(v)), T),
                'err',
                'special id out of range',
            )
    add(
        'v14_huge_token',
        build(
            setkv(
                tk + b'tokens', ARR, arr(STR, [S(b'q' * (1 << 20))] + [S(b'a%d' % i) for i in range(V - 1)])
            ),
            T,
        ),
        'err_or_ok',
        '1 MiB token (CVE-2025-49847 class)',
    )
    add(
        'v15_huge_vocab',
        build(setkv(tk + b'tokens', ARR, arr(STR, [S(b'')] * 300000)), T),
        'err',
        '300k empty tokens',
    )
    add(
        'v16_model_unknown', build(setkv(tk + b'model', STR, S(b'nope')), T), 'err', 'unknown tokenizer model'
    )
    add(
        'v17_pre_unknown',
        build(K + [(tk + b'pre', STR, S(b'nope'))], T),
        'err_or_ok',
        'unknown pre-tokenizer: must not fall back silently',
    )
    # templates
    big = '{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}x{% endfor %}{% endfor %}{% endfor %}'
    for nm, t in (
        ('loop', big),
        ('pow', '{{ 9**9**9 }}'),
        ('mul', "{{ 'a'*2000000000 }}"),
        (
            'double',
            "{% set ns=namespace(s='a') %}{% for i in range(60) %}{% set ns.s=ns.s+ns.s %}{% endfor %}{{ ns.s }}",
        ),
        ('recmacro', '{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}'),
        ('nest', '{{ ' + '(' * 20000 + '1' + ')' * 20000 + ' }}'),
        ('nestif', '{% if 1 %}' * 5000 + '{% endif %}' * 5000),
        ('ssti', "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
        ('cycler', "{{ cycler.__init__.__globals__.os.popen('id').read() }}"),
        ('include', "{% include '/etc/passwd' %}"),
        ('import', "{% import 'os' as o %}"),
        ('unclosed', '{% for m in messages %}'),
        ('binary', '\x00\x01{{'),
        ('raise', "{{ raise_exception('x') }}"),
        ('huge', 'a' * (8 << 20)),
        ('join', "{{ (range(50000)|join)*40000 }}"),
    ):
        add(
            'j01_' + nm,
            build(setkv(b'tokenizer.chat_template', STR, S(t.encode())), T),
            'err_on_render',
            'chat template ' + nm,
        )
    add(
        'j02_template_int',
        build(setkv(b'tokenizer.chat_template', U32, u32(1)), T),
        'err',
        'template wrong type',
    )
    # data values
    add(
        'd01_nan_weights',
        build(K, T, data=struct.pack('<f', float('nan')) * ((len(good) - 8192) // 4 + 4096)),
        'err_or_ok',
        'NaN weights: no panic in sampler; clear error',
    )
    add(
        'd02_inf_weights',
        build(K, T, data=struct.pack('<f', float('inf')) * ((len(good) - 8192) // 4 + 4096)),
        'err_or_ok',
        'Inf weights',
    )
    # truncation sweep
    hdr = good.index(b'\0' * 8, 1000)
    for i in list(range(0, len(good) - 1, max(1, len(good) // 120))):
        add(f'z_trunc_{i:06d}', good[:i], 'err', 'truncation sweep')
    return C


def st(hdr, data=b'\0' * 64, n=None, pad=b''):
    h = hdr if isinstance(hdr, bytes) else json.dumps(hdr).encode()
    h += pad
    return struct.pack('<Q', len(h) if n is None else n) + h + data


def gen_st():
    O = []
    A = lambda n, b, e, w: O.append((n, b, e, w))
    g = {'a': {'dtype': 'F32', 'shape': [4, 4], 'data_offsets': [0, 64]}}
    A('st00_good', st(g), 'ok', 'control')
    A('st01_empty', b'', 'err', 'empty')
    A('st02_7bytes', b'1234567', 'err', 'short')
    for n in (0, 1, 2**64 - 1, 2**63, 100_000_001, 10**6):
        A(f'st03_hdrlen_{n:x}', st(g, n=n), 'err', 'header length')
    A('st04_notjson', st(b'{"a":'), 'err', 'json')
    A('st05_nonutf8', st(b'{"\xff":1}'), 'err', 'utf8')
    A('st06_array', st(b'[]'), 'err', 'not object')
    A('st07_space_first', st(b' {}'), 'err_or_ok', 'must start with {')
    A('st08_nul_pad', st(g, pad=b'\0' * 3), 'err', 'NUL padding')
    A('st09_trailing_garbage_json', st(g, pad=b'{}'), 'err', 'trailing')
    A('st10_deep', st(b'{"a":' + b'[' * 100000 + b']' * 100000 + b'}'), 'err', 'deep json')
    A(
        'st11_dup_key',
        st(
            b'{"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]},"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}'
        ),
        'err',
        'duplicate tensor key',
    )
    for nm, t in (
        ('end_lt_begin', {'dtype': 'F32', 'shape': [4, 4], 'data_offsets': [64, 0]}),
        ('past_eof', {'dtype': 'F32', 'shape': [4, 8], 'data_offsets': [0, 128]}),
        ('size_mismatch', {'dtype': 'F32', 'shape': [4, 3], 'data_offsets': [0, 64]}),
        ('hole', {'dtype': 'F32', 'shape': [4, 2], 'data_offsets': [32, 64]}),
        ('shape_wrap', {'dtype': 'F32', 'shape': [2**32, 2**32], 'data_offsets': [0, 0]}),
        ('shape_wrap2', {'dtype': 'F32', 'shape': [2**62], 'data_offsets': [0, 0]}),
        ('neg_shape', {'dtype': 'F32', 'shape': [-4, -4], 'data_offsets': [0, 64]}),
        ('float_shape', {'dtype': 'F32', 'shape': [4.0, 4], 'data_offsets': [0, 64]}),
        ('neg_off', {'dtype': 'F32', 'shape': [4, 4], 'data_offsets': [-64, 0]}),
        ('off_u64', {'dtype': 'F32', 'shape': [4, 4], 'data_offsets': [2**64 - 64, 2**64]}),
        ('dtype_unknown', {'dtype': 'Z99', 'shape': [4, 4], 'data_offsets': [0, 64]}),
        ('dtype_missing', {'shape': [4, 4], 'data_offsets': [0, 64]}),
        ('offsets3', {'dtype': 'F32', 'shape': [4, 4], 'data_offsets': [0, 32, 64]}),
        ('zero_dim', {'dtype': 'F32', 'shape': [0, 4], 'data_offsets': [0, 0]}),
        ('ndim_10000', {'dtype': 'F32', 'shape': [1] * 10000, 'data_offsets': [0, 4]}),
    ):
        A(
            'st12_' + nm,
            st({'a': t}, data=b'\0' * (0 if nm == 'zero_dim' else 64)),
            'err' if nm != 'zero_dim' else 'err_or_ok',
            nm,
        )
    A(
        'st13_overlap',
        st(
            {
                'a': {'dtype': 'F32', 'shape': [8], 'data_offsets': [0, 32]},
                'b': {'dtype': 'F32', 'shape': [8], 'data_offsets': [16, 48]},
            },
            data=b'\0' * 48,
        ),
        'err',
        'overlap',
    )
    A('st14_trailing_data', st(g, data=b'\0' * 96), 'err', 'uncovered bytes (polyglot)')
    A('st15_meta_nonstring', st({'__metadata__': {'x': 1}, **g}), 'err', 'metadata value')
    A(
        'st16_100k_tensors',
        st({f't{i}': {'dtype': 'U8', 'shape': [0], 'data_offsets': [0, 0]} for i in range(100000)}, data=b''),
        'err_or_ok',
        'header bloat: bounded time',
    )
    A(
        'st17_index_traversal',
        json.dumps({'weight_map': {'a': '../../../../etc/passwd'}}).encode(),
        'err',
        'model.safetensors.index.json path traversal',
    )
    A(
        'st18_index_abs',
        json.dumps({'weight_map': {'a': '/dev/zero'}}).encode(),
        'err',
        'absolute/device path',
    )
    A(
        'st19_index_missing',
        json.dumps({'weight_map': {'a': 'nope.safetensors'}}).encode(),
        'err',
        'missing shard',
    )
    return O


if __name__ == '__main__':
    o = sys.argv[1]
    os.makedirs(o, exist_ok=True)
    m = []
    for n, b, e, w in gen():
        open(f'{o}/{n}.gguf', 'wb').write(b)
        m.append(dict(file=n + '.gguf', expect=e, why=w, size=len(b)))
    for n, b, e, w in gen_st():
        x = '.index.json' if 'index' in n else '.safetensors'
        open(f'{o}/{n}{x}', 'wb').write(b)
        m.append(dict(file=n + x, expect=e, why=w, size=len(b)))
    json.dump(m, open(o + '/manifest.json', 'w'), indent=0)
    print(
        len(m),
        'cases',
        sum(1 for x in m if not x['file'].startswith('z_')),
        'named',
        sum(x['size'] for x in m) >> 20,
        'MiB',
    )
