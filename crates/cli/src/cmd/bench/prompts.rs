//! The seven prompts every bench runs, whatever the model.
//!
//! Two are predictable (`edit` rewrites code of the prompt, `translate` follows its sentences), the others hardly.
//!
//! Invariant: their bytes never change; a changed prompt would make records incomparable.
//! Not here: the chat template around them (the model's own).

use sha2::{Digest, Sha256};

/// Name and text, in the order run.
pub(crate) const PROMPTS: [(&str, &str); 7] = [
    ("math", include_str!("../../../../../bench/prompts/math.txt")),
    ("code", include_str!("../../../../../bench/prompts/code.txt")),
    ("explain", include_str!("../../../../../bench/prompts/explain.txt")),
    ("summary", include_str!("../../../../../bench/prompts/summary.txt")),
    ("advice", include_str!("../../../../../bench/prompts/advice.txt")),
    ("translate", include_str!("../../../../../bench/prompts/translate.txt")),
    ("edit", include_str!("../../../../../bench/prompts/edit.txt")),
];

/// sha256 of a prompt's bytes in hexadecimal.
pub(crate) fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompts_are_the_recorded_ones() {
        let expected = [
            ("math", "b22e6c5f7c8572d3adb4f3acbece32f3b472f67f262a1a51b6a59e0effadb302"),
            ("code", "b4709d0fa5494d0acba656d9423822daed46ff2f0479a25de084186aae454d62"),
            ("explain", "ff21e18839eb156a40ff32cb16a6da2473d97ea26909963db333e23e87bdecae"),
            ("summary", "c7ca196a71197382e1c6d3f30ca1e9f3bf6c0885cbdbf693ffa268096a4c236e"),
            ("advice", "47e994737cb03f2a5356f0f249ab00f3fee5a3b4f69b3e1298d9fcd624886beb"),
            ("translate", "05d852f0d12a6fab9e84cb46da282dfb450db61ddbf19572b7a94d109782ee20"),
            ("edit", "e456ac9a5e4fb6c39b1fdcc47f80905dcb7cd54dcdb34e141ef2dee435df9a80"),
        ];
        assert_eq!(
            PROMPTS.map(|(name, text)| (name, hash(text))),
            expected.map(|(name, h)| (name, h.to_owned()))
        );
    }
}
