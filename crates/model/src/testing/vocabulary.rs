//! Small vocabularies for tiny models: byte-level BPE in GPT-2's style, and SentencePiece in Gemma's.
//!
//! Both can write any bytes, have a few merges, control tokens, an end token and a chat template.
//!
//! Invariant: a vocabulary has exactly the number of tokens asked for, all different.
//! Not here: tokenizing (`text`).

use crate::files::gguf::GgufWriter;

/// GGUF token types.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

/// Control tokens of byte-level vocabularies; they come last.
const CONTROLS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Common English pairs, most frequent first; each makes a token out of two that exist before it.
/// `Ġ` is how byte-level BPE writes a space.
const MERGES: [&str; 29] = [
    "Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n", "Ġ c",
    "i t", "i s", "a n", "o r", "e s", "Ġ b", "e d", "Ġ f", "in g", "Ġ p", "o u", "Ġa n", "a l", "Ġt o",
    "Ġan d",
];

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
    message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}\
    {{ '<|im_start|>assistant\n' }}{% endif %}";

const TURNS: &str = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}\
    {% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + \
    '\n' + message['content'] + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}\
    {{ '<start_of_turn>model\n' }}{% endif %}";

/// Writes a byte-level BPE vocabulary of `n` tokens: the bytes in order (token id = byte), merges, fillers
/// nothing encodes to, and last `<|endoftext|>`, `<|im_start|>`, `<|im_end|>`.
pub(super) fn byte_level(w: &mut GgufWriter, pre: &str, n: usize) {
    assert!(n >= 256 + CONTROLS.len(), "a byte-level vocabulary needs 259 tokens, not {n}");
    let mut tokens: Vec<String> = (0..=255).map(|byte| byte_letter(byte).to_string()).collect();
    let merges = &MERGES[..MERGES.len().min(n - 256 - CONTROLS.len())];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    while tokens.len() + CONTROLS.len() < n {
        tokens.push(format!("<|unused_{}|>", tokens.len()));
    }
    let mut types = vec![NORMAL; tokens.len()];
    tokens.extend(CONTROLS.map(str::to_owned));
    types.resize(n, CONTROL);

    w.str("tokenizer.ggml.model", "gpt2").str("tokenizer.ggml.pre", pre);
    w.strings("tokenizer.ggml.tokens", &tokens).i32s("tokenizer.ggml.token_type", &types);
    w.strings("tokenizer.ggml.merges", merges);
    w.u32("tokenizer.ggml.bos_token_id", n as u32 - 3).u32("tokenizer.ggml.eos_token_id", n as u32 - 1);
    w.u32("tokenizer.ggml.padding_token_id", n as u32 - 3).bool("tokenizer.ggml.add_bos_token", false);
    w.str("tokenizer.chat_template", CHATML);
}

/// Replaces tokens and merges of a byte-level vocabulary of `n` tokens by as many real words as fit: all of two
/// and three letters, each with every way to merge it, then some of four.
pub(super) fn large_byte_level(w: &mut GgufWriter, n: usize) {
    let letters: Vec<char> = (b'!'..=b'`').map(char::from).collect();
    let mut tokens: Vec<String> = (0..=255).map(|byte| byte_letter(byte).to_string()).collect();
    let mut merges = Vec::new();
    let mut words: Vec<String> = letters.iter().map(char::to_string).collect();
    while tokens.len() + CONTROLS.len() < n {
        words = words.iter().flat_map(|word| letters.iter().map(move |c| format!("{word}{c}"))).collect();
        words.truncate(n - CONTROLS.len() - tokens.len());
        // Every way to cut these words leaves two shorter ones, and of those all exist.
        merges.extend(
            words.iter().flat_map(|word| {
                (1..word.len()).map(move |cut| format!("{} {}", &word[..cut], &word[cut..]))
            }),
        );
        tokens.extend_from_slice(&words);
    }
    let mut types = vec![NORMAL; tokens.len()];
    tokens.extend(CONTROLS.map(str::to_owned));
    types.resize(n, CONTROL);
    w.strings("tokenizer.ggml.tokens", &tokens).i32s("tokenizer.ggml.token_type", &types);
    w.strings("tokenizer.ggml.merges", &merges);
}

/// Writes a SentencePiece vocabulary of `n` tokens: Gemma's controls, 256 byte tokens, letters and pieces with
/// falling scores, and fillers nothing encodes to.
pub(super) fn sentence_piece(w: &mut GgufWriter, n: usize) {
    const GEMMA: [(&str, i32); 6] = [
        ("<pad>", CONTROL),
        ("<eos>", CONTROL),
        ("<bos>", CONTROL),
        ("<unk>", UNKNOWN),
        ("<start_of_turn>", CONTROL),
        ("<end_of_turn>", CONTROL),
    ];
    assert!(n >= GEMMA.len() + 257, "a SentencePiece vocabulary needs 263 tokens, not {n}");
    let mut tokens: Vec<(String, i32, f32)> = GEMMA.map(|(text, kind)| (text.to_owned(), kind, 0.0)).to_vec();
    tokens.extend((0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), BYTE, 0.0)));
    let letters = ("▁etaoinshrdlucmfwypvbgkqjxz".chars().map(String::from)).chain(["\n".to_owned()]);
    let pairs = MERGES.iter().map(|merge| merge.replace(' ', "").replace('Ġ', "▁"));
    // Pairs come first because a higher score wins: they must beat the letters they are made of.
    for (rank, text) in pairs.chain(letters).enumerate() {
        if tokens.len() < n {
            tokens.push((text, NORMAL, -(rank as f32)));
        }
    }
    while tokens.len() < n {
        tokens.push((format!("<unused{}>", tokens.len()), NORMAL, -1000.0));
    }

    let texts: Vec<&str> = tokens.iter().map(|(text, _, _)| text.as_str()).collect();
    let types: Vec<i32> = tokens.iter().map(|(_, kind, _)| *kind).collect();
    let scores: Vec<f32> = tokens.iter().map(|(_, _, score)| *score).collect();
    w.str("tokenizer.ggml.model", "llama").str("tokenizer.ggml.pre", "default");
    w.strings("tokenizer.ggml.tokens", &texts).f32s("tokenizer.ggml.scores", &scores);
    w.i32s("tokenizer.ggml.token_type", &types);
    w.u32("tokenizer.ggml.bos_token_id", 2).u32("tokenizer.ggml.eos_token_id", 1);
    w.u32("tokenizer.ggml.eot_token_id", 5).u32("tokenizer.ggml.unknown_token_id", 3);
    w.u32("tokenizer.ggml.padding_token_id", 0);
    w.bool("tokenizer.ggml.add_bos_token", true).bool("tokenizer.ggml.add_eos_token", false);
    w.bool("tokenizer.ggml.add_space_prefix", false).str("tokenizer.chat_template", TURNS);
}

/// GPT-2's printable stand-in for a byte: itself where it is printable, else a letter from U+0100 on.
fn byte_letter(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !printable(*b)).count() as u32;
    char::from_u32(256 + before).expect("at most 68 bytes have stand-ins, all of them letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_gpt2s() {
        assert_eq!(
            [b' ', b'\n', b'a', 0x00, 0x7f, 0xad, 0xff].map(byte_letter),
            ['Ġ', 'Ċ', 'a', 'Ā', 'ġ', 'Ń', 'ÿ']
        );
    }

    #[test]
    fn vocabularies_have_the_size_asked_for_and_no_doubles() {
        for n in [263, 270, 320, 1000] {
            let (mut bytes, mut pieces) = (GgufWriter::new(), GgufWriter::new());
            byte_level(&mut bytes, "qwen2", n);
            sentence_piece(&mut pieces, n);
            for w in [bytes, pieces] {
                let gguf = crate::Gguf::parse(w.finish()).unwrap();
                let tokens = gguf.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
                let types = gguf.metadata().require_i32s("tokenizer.ggml.token_type").unwrap();
                let distinct: std::collections::HashSet<_> = tokens.iter().collect();
                assert_eq!((tokens.len(), types.len(), distinct.len()), (n, n, n));
            }
        }
    }

    #[test]
    fn every_merge_joins_two_tokens_that_exist_before_it() {
        let mut known: Vec<String> = (0..=255).map(|b| byte_letter(b).to_string()).collect();
        for merge in MERGES {
            let (left, right) = merge.split_once(' ').unwrap();
            assert!([left, right].iter().all(|part| known.iter().any(|k| k == part)), "{merge}");
            known.push(format!("{left}{right}"));
        }
    }
}
