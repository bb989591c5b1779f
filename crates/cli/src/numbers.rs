//! Reads numbers of the command line.
//!
//! clap puts the flag before these messages; they say what is wrong with the value.
//!
//! Invariant: every refusal quotes the value.
//! Not here: ranges that depend on the model, or on other flags (`args`, `pilotfish`).

use std::num::IntErrorKind;

use pilotfish::MAX_THREADS;

/// A whole number that fits `T`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn whole<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    let value: i128 = text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => format!("`{text}` is too large"),
        _ => format!("`{text}` is not a whole number"),
    })?;
    let refuse = |_| {
        let what = if value < 0 { "cannot be negative" } else { "is too large" };
        format!("`{text}` {what}")
    };
    T::try_from(value).map_err(refuse)
}

/// A number, with a point before its fraction.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// A number of threads.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let n: i128 = whole(text)?;
    let fitting = usize::try_from(n).ok().filter(|n| (1..=MAX_THREADS).contains(n));
    fitting.ok_or_else(|| format!("`{text}` is not possible; it must be 1 to {MAX_THREADS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_or_quoted() {
        assert_eq!(whole::<usize>("12"), Ok(12));
        assert_eq!(whole::<i64>("-1"), Ok(-1));
        assert_eq!(whole::<usize>("abc").unwrap_err(), "`abc` is not a whole number");
        assert_eq!(whole::<usize>("1.5").unwrap_err(), "`1.5` is not a whole number");
        assert_eq!(whole::<usize>("-1").unwrap_err(), "`-1` cannot be negative");
        assert_eq!(whole::<i32>("3000000000").unwrap_err(), "`3000000000` is too large");
        assert_eq!(
            whole::<usize>(&"9".repeat(60)).unwrap_err(),
            format!("`{}` is too large", "9".repeat(60))
        );
        assert_eq!(number("0.5"), Ok(0.5));
        assert_eq!(number("0,5").unwrap_err(), "`0,5` is not a number");
    }

    #[test]
    fn threads_have_a_most() {
        assert_eq!((threads("1"), threads("512")), (Ok(1), Ok(512)));
        for text in ["0", "-1", "513", "20000", "99999999999999999999"] {
            assert!(threads(text).unwrap_err().ends_with("it must be 1 to 512"), "{text}");
        }
        assert_eq!(threads("x").unwrap_err(), "`x` is not a whole number");
    }
}
