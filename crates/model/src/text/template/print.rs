//! Values as text the way Python writes them: `str`, `repr`, and `json.dumps` with Hugging Face's settings.
//!
//! Templates are written for Python, where `{{ true }}` is `True` and JSON has a space behind each comma; a model
//! was trained on exactly that.
//!
//! Invariant: recursion stops at `MAX_DEPTH`, and every byte and every item is paid for.
//! Not here: what a template may do with the text (`filters`).

use std::fmt::{self, Write};

use minijinja::Error;
use minijinja::value::{Value, ValueKind};

use super::budget::{Budget, MAX_DEPTH, Paid};

/// `str(value)`.
pub(super) fn text(value: &Value, budget: &Budget) -> Result<String, Error> {
    let mut out = Paid::new(budget);
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => repr(value, &mut out, 0),
    };
    out.finish(written)
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
pub(super) fn json(value: &Value, indent: Option<usize>, budget: &Budget) -> Result<String, Error> {
    let mut out = Paid::new(budget);
    let written = write_json(value, indent, &mut out, 0);
    out.finish(written)
}

fn repr(value: &Value, out: &mut Paid<'_>, depth: usize) -> fmt::Result {
    if depth > MAX_DEPTH {
        return Err(fmt::Error);
    }
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out, ["nan", "inf", "-inf"]),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.write_char('{')?;
            for (index, key) in value.try_iter().map_err(|_| fmt::Error)?.enumerate() {
                out.item()?;
                if index > 0 {
                    out.write_str(", ")?;
                }
                repr(&key, out, depth + 1)?;
                out.write_str(": ")?;
                repr(&value.get_item(&key).map_err(|_| fmt::Error)?, out, depth + 1)?;
            }
            out.write_char('}')
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.write_char('[')?;
            for (index, item) in value.try_iter().map_err(|_| fmt::Error)?.enumerate() {
                out.item()?;
                if index > 0 {
                    out.write_str(", ")?;
                }
                repr(&item, out, depth + 1)?;
            }
            out.write_char(']')
        }
        // Macros, functions and the loop variable; their own text holds no other values.
        _ => out.write_str(value.kind().to_string().as_str()),
    }
}

/// Python's quoting: single quotes unless only they occur inside.
fn quoted(text: &str, out: &mut Paid<'_>) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c == quote => write!(out, "\\{c}")?,
            c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char(quote)
}

/// An integer in full, or a float as Python's shortest form; `special` names NaN and the infinities.
fn number(value: &Value, out: &mut Paid<'_>, special: [&str; 3]) -> fmt::Result {
    if value.is_integer() {
        return write!(out, "{value}");
    }
    let Ok(float) = f64::try_from(value.clone()) else { return write!(out, "{value}") };
    if float.is_nan() {
        return out.write_str(special[0]);
    }
    if float.is_infinite() {
        return out.write_str(special[if float > 0.0 { 1 } else { 2 }]);
    }
    // Rust and Python agree on the digits and on when to use an exponent, not on how to write it.
    let digits = format!("{float:?}");
    match digits.split_once('e') {
        None => out.write_str(&digits),
        Some((mantissa, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            write!(out, "{}e{sign}{exponent:0>2}", mantissa.strip_suffix(".0").unwrap_or(mantissa))
        }
    }
}

fn write_json(value: &Value, indent: Option<usize>, out: &mut Paid<'_>, depth: usize) -> fmt::Result {
    if depth > MAX_DEPTH {
        return Err(fmt::Error);
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => out.write_str("null"),
        ValueKind::Bool => out.write_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(value, out, ["NaN", "Infinity", "-Infinity"]),
        ValueKind::String => json_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.write_char('{')?;
            let mut any = false;
            for key in value.try_iter().map_err(|_| fmt::Error)? {
                out.item()?;
                separate(any, indent, out, depth + 1)?;
                any = true;
                match key.as_str() {
                    Some(text) => json_string(text, out)?,
                    None => {
                        out.write_char('"')?;
                        write_json(&key, None, out, depth + 1)?;
                        out.write_char('"')?;
                    }
                }
                out.write_str(": ")?;
                write_json(&value.get_item(&key).map_err(|_| fmt::Error)?, indent, out, depth + 1)?;
            }
            close(any, indent, out, depth)?;
            out.write_char('}')
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.write_char('[')?;
            let mut any = false;
            for item in value.try_iter().map_err(|_| fmt::Error)? {
                out.item()?;
                separate(any, indent, out, depth + 1)?;
                any = true;
                write_json(&item, indent, out, depth + 1)?;
            }
            close(any, indent, out, depth)?;
            out.write_char(']')
        }
        _ => out.write_str("null"),
    }
}

fn separate(any: bool, indent: Option<usize>, out: &mut Paid<'_>, depth: usize) -> fmt::Result {
    match (any, indent) {
        (false, None) => Ok(()),
        (true, None) => out.write_str(", "),
        (any, Some(width)) => {
            out.write_str(if any { ",\n" } else { "\n" })?;
            spaces(width * depth, out)
        }
    }
}

fn close(any: bool, indent: Option<usize>, out: &mut Paid<'_>, depth: usize) -> fmt::Result {
    match indent.filter(|_| any) {
        None => Ok(()),
        Some(width) => {
            out.write_char('\n')?;
            spaces(width * depth, out)
        }
    }
}

fn spaces(count: usize, out: &mut Paid<'_>) -> fmt::Result {
    (0..count).try_for_each(|_| out.write_char(' '))
}

fn json_string(text: &str, out: &mut Paid<'_>) -> fmt::Result {
    out.write_char('"')?;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') {
        out.write_str(&rest[..at])?;
        match rest.as_bytes()[at] {
            b'"' => out.write_str("\\\"")?,
            b'\\' => out.write_str("\\\\")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\t' => out.write_str("\\t")?,
            0x08 => out.write_str("\\b")?,
            0x0C => out.write_str("\\f")?,
            other => write!(out, "\\u{other:04x}")?,
        }
        rest = &rest[at + 1..];
    }
    out.write_str(rest)?;
    out.write_char('"')
}
