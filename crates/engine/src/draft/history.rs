//! Past replies as bytes, so that a later run can draft from them.
//!
//! A file is a sequence of little-endian words of four bytes:
//!
//! ```text
//! magic (2)  version  fingerprint (2)  number of replies  { length  tokens … } …  hash of all before it (2)
//! ```
//!
//! Token ids mean something in one vocabulary only, so the file carries its fingerprint. The replies are
//! bounded in tokens all together, and whole replies leave, oldest first.
//!
//! Invariant: no count in a file is believed before the hash, and none makes room for more than the bytes that
//! are there.
//! Not here: opening and replacing files (whoever embeds the engine), learning from replies
//! (`SuffixDrafter::learn`).

use std::collections::VecDeque;

use super::hash::fnv;

const MAGIC: [u8; 8] = *b"pfhistry";
const VERSION: u32 = 1;
/// Words around the replies: magic, version, fingerprint, count, hash.
const FRAME: usize = 8;

/// Why bytes are no history that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// Something else: best left alone.
    #[error("it is no history of replies")]
    Foreign,
    /// Written by another release.
    #[error("it is of version {0}, and this is version {VERSION}")]
    Version(u32),
    /// Replies in another vocabulary.
    #[error("it is of a model with another vocabulary")]
    Vocabulary,
    /// More than may be held.
    #[error("it is longer than the {0} tokens that are kept")]
    TooLong(usize),
    /// Cut short, or changed.
    #[error("it is damaged")]
    Damaged,
}

/// The last replies of one vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    fingerprint: u64,
    max_tokens: usize,
    replies: VecDeque<Vec<u32>>,
    tokens: usize,
}

impl History {
    /// No replies yet, of the vocabulary with this [`fingerprint`](super::fingerprint), and never more than
    /// `max_tokens` tokens of them.
    pub fn new(fingerprint: u64, max_tokens: usize) -> Self {
        Self { fingerprint, max_tokens, replies: VecDeque::new(), tokens: 0 }
    }

    /// The replies that `bytes` hold.
    ///
    /// # Errors
    /// What is wrong with them; the caller may go on with [`History::new`].
    pub fn decode(bytes: &[u8], fingerprint: u64, max_tokens: usize) -> Result<Self, HistoryError> {
        let begun = bytes.len().min(MAGIC.len());
        if bytes[..begun] != MAGIC[..begun] {
            return Err(HistoryError::Foreign);
        }
        if bytes.len() > Self::max_bytes(max_tokens) {
            return Err(HistoryError::TooLong(max_tokens));
        }
        let (words, rest) = bytes.as_chunks::<4>();
        if words.len() < FRAME || !rest.is_empty() {
            return Err(HistoryError::Damaged);
        }
        let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        if words[2] != VERSION {
            return Err(HistoryError::Version(words[2]));
        }
        let (body, hash) = words.split_at(words.len() - 2);
        if halves(fnv(0, body.iter().copied())) != hash {
            return Err(HistoryError::Damaged);
        }
        if halves(fingerprint) != body[3..5] {
            return Err(HistoryError::Vocabulary);
        }
        let mut history = Self::new(fingerprint, max_tokens);
        let mut rest = &body[FRAME - 2..];
        let mut total = 0;
        for _ in 0..body[5] {
            let (&len, tokens) = rest.split_first().ok_or(HistoryError::Damaged)?;
            let (reply, next) = tokens.split_at_checked(len as usize).ok_or(HistoryError::Damaged)?;
            total += reply.len();
            if total > max_tokens {
                return Err(HistoryError::TooLong(max_tokens));
            }
            history.push(reply);
            rest = next;
        }
        if rest.is_empty() { Ok(history) } else { Err(HistoryError::Damaged) }
    }

    /// The bytes that [`History::decode`] reads.
    pub fn encode(&self) -> Vec<u8> {
        let count =
            u32::try_from(self.replies.len()).expect("every reply has a token, and tokens are bounded");
        let mut words: Vec<u32> =
            MAGIC.as_chunks::<4>().0.iter().map(|&half| u32::from_le_bytes(half)).collect();
        words.push(VERSION);
        words.extend(halves(self.fingerprint));
        words.push(count);
        for reply in &self.replies {
            words.push(u32::try_from(reply.len()).expect("tokens are bounded"));
            words.extend(reply);
        }
        words.extend(halves(fnv(0, words.iter().copied())));
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// Most bytes that a history of `max_tokens` tokens encodes to: every reply has at least one.
    pub fn max_bytes(max_tokens: usize) -> usize {
        4 * max_tokens.saturating_mul(2).saturating_add(FRAME).min(usize::MAX / 4)
    }

    /// Adds a reply; of one longer than the whole history, the end.
    pub fn push(&mut self, reply: &[u32]) {
        let kept = &reply[reply.len().saturating_sub(self.max_tokens)..];
        if kept.is_empty() {
            return;
        }
        self.replies.push_back(kept.to_vec());
        self.tokens += kept.len();
        while self.tokens > self.max_tokens {
            self.tokens -= self.replies.pop_front().map_or(0, |oldest| oldest.len());
        }
    }

    /// The replies, oldest first.
    pub fn replies(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.replies.iter().map(Vec::as_slice)
    }
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> History {
        let mut history = History::new(0x1234_5678_9abc_def0, 100);
        history.push(&[1, 2, 3]);
        history.push(&[u32::MAX]);
        history.push(&[0; 20]);
        history
    }

    fn read(bytes: &[u8]) -> Result<History, HistoryError> {
        History::decode(bytes, 0x1234_5678_9abc_def0, 100)
    }

    /// A body with a hash that fits.
    fn sealed(body: &[u32]) -> Vec<u8> {
        let words = [body, &halves(fnv(0, body.iter().copied()))].concat();
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
    }

    #[test]
    fn history_comes_back_as_it_was() {
        assert_eq!(read(&small().encode()), Ok(small()));
        let empty = History::new(0x1234_5678_9abc_def0, 100);
        assert_eq!(read(&empty.encode()), Ok(empty));
    }

    #[test]
    fn history_forgets_whole_replies_and_keeps_the_end_of_a_long_one() {
        let mut history = History::new(0, 5);
        history.push(&[1, 2]);
        history.push(&[3, 4]);
        history.push(&[]);
        assert_eq!(history.replies().collect::<Vec<_>>(), [&[1, 2][..], &[3, 4]]);
        history.push(&[5, 6]);
        assert_eq!(history.replies().collect::<Vec<_>>(), [&[3, 4][..], &[5, 6]]);
        history.push(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(history.replies().collect::<Vec<_>>(), [&[3, 4, 5, 6, 7][..]]);
        assert_eq!(History::decode(&history.encode(), 0, 5), Ok(history));
    }

    #[test]
    fn history_sees_every_flipped_bit_and_every_cut() {
        let bytes = small().encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let error = read(&flipped).unwrap_err();
                assert_eq!(error == HistoryError::Foreign, at < 8, "byte {at}: {error}");
            }
            assert_eq!(read(&bytes[..at]), Err(HistoryError::Damaged), "cut at {at}");
            assert_eq!(read(&[&bytes[..], &bytes[..=at]].concat()), Err(HistoryError::Damaged));
        }
    }

    #[test]
    fn history_of_others_is_told_apart() {
        let bytes = small().encode();
        assert_eq!(read(b"{\"text\": 1}"), Err(HistoryError::Foreign));
        assert_eq!(History::decode(&bytes, 1, 100), Err(HistoryError::Vocabulary));
        let mut later = words(&bytes);
        later.truncate(later.len() - 2);
        later[2] = 7;
        assert_eq!(read(&sealed(&later)), Err(HistoryError::Version(7)));
    }

    #[test]
    fn history_believes_no_count_that_the_bytes_do_not_bear_out() {
        let whole = words(&small().encode());
        let body = &whole[..whole.len() - 2];
        assert_eq!(read(&sealed(body)), Ok(small()));
        // The number of replies, and the length of the first.
        for at in [5, 6] {
            for count in [0, 1, 2, 4, 1 << 20, u32::MAX] {
                let mut lying = body.to_vec();
                lying[at] = count;
                assert_eq!(read(&sealed(&lying)), Err(HistoryError::Damaged), "word {at} is {count}");
            }
        }
    }

    #[test]
    fn history_longer_than_it_may_be_is_refused() {
        let mut long = History::new(0, 1000);
        (0..1000).for_each(|token| long.push(&[token]));
        let bytes = long.encode();
        assert_eq!(bytes.len(), History::max_bytes(1000));
        assert_eq!(History::decode(&bytes, 0, 1000), Ok(long));
        assert_eq!(History::decode(&bytes, 0, 999), Err(HistoryError::TooLong(999)));
        // Few replies are short files for their tokens.
        assert_eq!(
            History::decode(&small().encode(), 0x1234_5678_9abc_def0, 23),
            Err(HistoryError::TooLong(23))
        );
        assert_eq!(History::max_bytes(usize::MAX), 4 * (usize::MAX / 4));
    }
}
