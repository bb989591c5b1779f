//! Methods of Python's strings, dictionaries and lists that templates call, such as `.split('…')[0]` and `.items()`.
//!
//! Most come from `minijinja-contrib`; this file says which may be called, makes them pay, and adds the few
//! it lacks.
//!
//! Invariant: a method pays for the largest result it could have before it runs.
//! Not here: filters of the same names (`filters`).

use std::sync::Arc;

use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::budget::{Budget, NEW_ITEM};
use super::filters;
use super::operators::{compare, invalid};

/// Lets templates call the methods listed here.
pub(super) fn install(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    let budget = budget.clone();
    env.set_unknown_method_callback(move |state, value, method, args| {
        call(state, &budget, value, method, args)
    });
}

/// Calls a method of a string, map or list.
pub(super) fn call(
    state: &State,
    budget: &Budget,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => of_string(state, budget, value, text, method, args),
        (None, ValueKind::Map) => of_map(state, budget, value, method, args),
        (None, ValueKind::Seq | ValueKind::Iterable) => of_list(budget, value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_string(
    state: &State,
    budget: &Budget,
    value: &Value,
    text: &str,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match method {
        "strip" | "lstrip" | "rstrip" => budget.charge(text.len())?,
        // Changing case can take three bytes for one.
        "upper" | "lower" | "title" | "capitalize" => budget.string(text.len().saturating_mul(3))?,
        "startswith" | "endswith" | "find" | "rfind" | "isdigit" | "isnumeric" | "isalpha" | "isalnum"
        | "isspace" | "isupper" | "islower" | "isascii" => budget.charge(text.len())?,
        "split" => {
            let separator = args.first().and_then(Value::as_str);
            let pieces = match separator {
                Some("") => return Err(invalid("cannot split by an empty string")),
                Some(separator) => text.matches(separator).count(),
                None => text.split_whitespace().count(),
            };
            budget.charge(2 * text.len() + (pieces + 1) * NEW_ITEM)?;
        }
        "splitlines" => budget.charge(text.len() + (text.matches('\n').count() + 1) * NEW_ITEM)?,
        "replace" => {
            let (old, new, _): (&str, &str, Option<i32>) = from_args(args)?;
            let places = if old.is_empty() { text.len() + 1 } else { text.matches(old).count() };
            budget.string(text.len().saturating_add(places.saturating_mul(new.len())))?;
        }
        "count" => {
            let (what,): (&str,) = from_args(args)?;
            budget.charge(text.len())?;
            let found = if what.is_empty() { text.chars().count() + 1 } else { text.matches(what).count() };
            return Ok(Value::from(found));
        }
        "join" => {
            let (list,): (&Value,) = from_args(args)?;
            return filters::join(list.try_iter()?, text, budget);
        }
        "format" => check_format(text, args, budget)?,
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            budget.charge(text.len())?;
            let cut =
                if method == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            return Ok(Value::from(cut.unwrap_or(text)));
        }
        "partition" | "rpartition" => {
            let (part,): (&str,) = from_args(args)?;
            budget.charge(text.len())?;
            let cut = if method == "partition" { text.split_once(part) } else { text.rsplit_once(part) };
            let three = match (cut, method) {
                (Some((left, right)), _) => [left, part, right],
                (None, "partition") => [text, "", ""],
                (None, _) => ["", "", text],
            };
            return Ok(Value::from(three.map(Value::from).to_vec()));
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    }
    unknown_method_callback(state, value, method, args)
}

fn of_map(
    state: &State,
    budget: &Budget,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match method {
        "items" => filters::pairs(value, budget).map(Value::from),
        "keys" | "values" => {
            let pairs = filters::pairs(value, budget)?;
            let which = usize::from(method == "values");
            pairs
                .iter()
                .map(|pair| pair.get_item_by_index(which))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from)
        }
        "get" => match args.first().map(Value::kind) {
            Some(ValueKind::Map | ValueKind::Seq | ValueKind::Iterable) => {
                Err(invalid("a key must be an atom"))
            }
            _ => unknown_method_callback(state, value, method, args),
        },
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_list(budget: &Budget, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&Value,) = match method {
        "count" | "index" => from_args(args)?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    };
    let mut found = 0usize;
    for (index, item) in value.try_iter()?.enumerate() {
        if compare(&item, "==", what, budget)? {
            if method == "index" {
                return Ok(Value::from(index));
            }
            found += 1;
        }
    }
    if method == "index" { Err(invalid("the item is not in the list")) } else { Ok(Value::from(found)) }
}

/// Bounds what a format string can expand to: its own length, its arguments, and widths of up to three digits.
pub(super) fn check_format(text: &str, args: &[Value], budget: &Budget) -> Result<(), Error> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if digits > 3 || text.contains(".*") || text.contains("%*") || text.contains(":{") {
        return Err(invalid("widths of a format string are limited to three digits"));
    }
    let mut longest = 0usize;
    for arg in args {
        longest = longest.max(super::print::text(arg, budget)?.len());
    }
    let places = text.matches(['%', '{']).count();
    budget.string(text.len().saturating_add(places.saturating_mul(longest.saturating_add(1000))))
}
