//! Tokenizers of tiny vocabularies: exact ids, special tokens, bad files, long inputs.

use super::*;
