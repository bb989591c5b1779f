//! The operators `guard` puts in place of the engine's: the same results, counted.
//!
//! Invariant: each one pays before it copies, and compares no deeper than `MAX_DEPTH`.
//! Not here: where they are inserted (`guard`), named filters and methods (`filters`, `methods`).

use std::cmp::Ordering;
use std::sync::Arc;

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use super::budget::{Budget, ITEM, MAX_DEPTH, NEW_ITEM};
use super::print;

/// Adds every operator to the environment under its unspeakable name.
pub(super) fn install(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    let b = budget.clone();
    env.add_filter("+", move |left: &Value, right: &Value| add(left, right, &b));
    let b = budget.clone();
    env.add_filter("*", move |left: &Value, right: &Value| multiply(left, right, &b));
    env.add_filter("**", power);
    let b = budget.clone();
    env.add_filter("~", move |left: &Value, right: &Value| -> Result<String, Error> {
        let (left, right) = (print::text(left, &b)?, print::text(right, &b)?);
        b.string(left.len() + right.len())?;
        Ok(left + &right)
    });
    let b = budget.clone();
    env.add_filter("<=>", move |first: &Value, rest: Rest<Value>| -> Result<bool, Error> {
        let mut left = first;
        for pair in rest.chunks_exact(2) {
            if !compare(left, pair[0].as_str().unwrap_or_default(), &pair[1], &b)? {
                return Ok(false);
            }
            left = &pair[1];
        }
        Ok(true)
    });
    let b = budget.clone();
    env.add_filter("[:]", move |value: &Value, start: &Value, stop: &Value, step: &Value| {
        slice(value, [start, stop, step], &b)
    });
    env.add_filter("[]", |key: &Value| -> Result<Value, Error> {
        match key.kind() {
            ValueKind::Map | ValueKind::Seq | ValueKind::Iterable | ValueKind::Plain => {
                Err(invalid(format!("a {} cannot be a key", key.kind())))
            }
            _ => Ok(key.clone()),
        }
    });
    let b = budget.clone();
    env.add_filter("[,]", move |made: &Value| -> Result<Value, Error> {
        b.depth(made, 0)?;
        Ok(made.clone())
    });
    let b = budget.clone();
    env.add_filter("for", move |value: &Value| -> Result<Value, Error> {
        b.charge(ITEM * value.len().unwrap_or(0))?;
        Ok(value.clone())
    });
}

/// An error about what the template did, as opposed to how much.
pub(super) fn invalid(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// All items of a list, or keys of a map, paid for one by one.
pub(super) fn items(value: &Value, budget: &Budget) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()? {
        budget.charge(NEW_ITEM)?;
        items.push(item);
    }
    Ok(items)
}

fn add(left: &Value, right: &Value, budget: &Budget) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        budget.string(a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if is_list(left) && is_list(right) {
        let mut all = items(left, budget)?;
        all.extend(items(right, budget)?);
        budget.list(all.len())?;
        return Ok(Value::from(all));
    }
    match numbers(left, right) {
        Some(Numbers::Whole(a, b)) => a.checked_add(b).map(Value::from).ok_or_else(too_large),
        Some(Numbers::Real(a, b)) => Ok(Value::from(a + b)),
        None => Err(invalid(format!("cannot add {} and {}", left.kind(), right.kind()))),
    }
}

fn multiply(left: &Value, right: &Value, budget: &Budget) -> Result<Value, Error> {
    let (thing, count) = if left.is_number() { (right, left) } else { (left, right) };
    if thing.as_str().is_some() || is_list(thing) {
        let count = count.as_i64().ok_or_else(|| invalid("can only repeat by a whole number"))?;
        let count = usize::try_from(count).unwrap_or(0);
        if let Some(text) = thing.as_str() {
            budget.string(text.len().saturating_mul(count))?;
            return Ok(Value::from(text.repeat(count)));
        }
        let one = items(thing, budget)?;
        budget.list(one.len().saturating_mul(count))?;
        let repeated = std::iter::repeat_with(|| one.iter().cloned()).take(count);
        return Ok(Value::from(repeated.flatten().collect::<Vec<_>>()));
    }
    match numbers(left, right) {
        Some(Numbers::Whole(a, b)) => a.checked_mul(b).map(Value::from).ok_or_else(too_large),
        Some(Numbers::Real(a, b)) => Ok(Value::from(a * b)),
        None => Err(invalid(format!("cannot multiply {} and {}", left.kind(), right.kind()))),
    }
}

fn power(left: &Value, right: &Value) -> Result<Value, Error> {
    match numbers(left, right) {
        Some(Numbers::Whole(a, b)) if b >= 0 => {
            let exponent = u32::try_from(b).map_err(|_| too_large())?;
            a.checked_pow(exponent).map(Value::from).ok_or_else(too_large)
        }
        Some(Numbers::Whole(a, b)) => Ok(Value::from((a as f64).powf(b as f64))),
        Some(Numbers::Real(a, b)) => Ok(Value::from(a.powf(b))),
        None => Err(invalid(format!("cannot raise {} to {}", left.kind(), right.kind()))),
    }
}

fn too_large() -> Error {
    invalid("a number is too large")
}

enum Numbers {
    Whole(i64, i64),
    Real(f64, f64),
}

fn numbers(left: &Value, right: &Value) -> Option<Numbers> {
    let number = |v: &Value| v.is_number() || v.kind() == ValueKind::Bool;
    if !number(left) || !number(right) {
        return None;
    }
    let whole =
        |v: &Value| if v.kind() == ValueKind::Bool { Some(i64::from(v.is_true())) } else { v.as_i64() };
    let real = |v: &Value| f64::try_from(v.clone()).ok().or_else(|| whole(v).map(|n| n as f64));
    // A float without a fraction also reads as a whole number, but must stay a float.
    let float = |v: &Value| v.is_number() && !v.is_integer();
    match (whole(left), whole(right)) {
        (Some(a), Some(b)) if !float(left) && !float(right) => Some(Numbers::Whole(a, b)),
        _ => Some(Numbers::Real(real(left)?, real(right)?)),
    }
}

/// One comparison by the operator's spelling.
pub(super) fn compare(left: &Value, op: &str, right: &Value, budget: &Budget) -> Result<bool, Error> {
    Ok(match op {
        "==" => equal(left, right, budget, 0)?,
        "!=" => !equal(left, right, budget, 0)?,
        "<" => order(left, right, budget)?.is_lt(),
        "<=" => order(left, right, budget)?.is_le(),
        ">" => order(left, right, budget)?.is_gt(),
        ">=" => order(left, right, budget)?.is_ge(),
        "not in" => !contains(right, left, budget)?,
        _ => contains(right, left, budget)?,
    })
}

/// Whether two values are equal, item by item.
pub(super) fn equal(left: &Value, right: &Value, budget: &Budget, depth: usize) -> Result<bool, Error> {
    if depth > MAX_DEPTH {
        return Err(budget.exceeded("a value of it is nested too deeply"));
    }
    budget.charge(ITEM)?;
    match (left.kind(), right.kind()) {
        (ValueKind::String, ValueKind::String) => {
            let (a, b) = (left.as_str().unwrap_or_default(), right.as_str().unwrap_or_default());
            budget.charge(if a.len() == b.len() { a.len() } else { 0 })?;
            Ok(a == b)
        }
        (ValueKind::Map, ValueKind::Map) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for key in left.try_iter()? {
                let (a, b) = (left.get_item(&key)?, right.get_item(&key)?);
                if !equal(&a, &b, budget, depth + 1)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ if is_list(left) && is_list(right) => {
            let (mut a, mut b) = (left.try_iter()?, right.try_iter()?);
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return Ok(true),
                    (Some(x), Some(y)) if equal(&x, &y, budget, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
        }
        // Two of what is left are atoms, which the engine compares in one step.
        (a, b) if a == b || (left.is_number() && right.is_number()) => {
            Ok(a != ValueKind::Plain && left == right)
        }
        (ValueKind::Bool, ValueKind::Number) | (ValueKind::Number, ValueKind::Bool) => {
            Ok(matches!(numbers(left, right), Some(Numbers::Whole(a, b)) if a == b))
        }
        _ => Ok(false),
    }
}

/// Order of two numbers or two strings.
pub(super) fn order(left: &Value, right: &Value, budget: &Budget) -> Result<Ordering, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        budget.charge(a.len().min(b.len()))?;
        return Ok(a.cmp(b));
    }
    let ordered = match numbers(left, right) {
        Some(Numbers::Whole(a, b)) => Some(a.cmp(&b)),
        Some(Numbers::Real(a, b)) => a.partial_cmp(&b),
        None => None,
    };
    ordered.ok_or_else(|| invalid(format!("cannot order {} and {}", left.kind(), right.kind())))
}

/// Whether a string, list or map contains something.
pub(super) fn contains(container: &Value, item: &Value, budget: &Budget) -> Result<bool, Error> {
    if let Some(text) = container.as_str() {
        budget.charge(text.len())?;
        let item = item.as_str().ok_or_else(|| invalid("only a string can be in a string"))?;
        return Ok(text.contains(item));
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Map if is_list(item) || item.kind() == ValueKind::Map => Ok(false),
        // A missing key reads as undefined, one without a value as none.
        ValueKind::Map => Ok(!container.get_item(item)?.is_undefined()),
        ValueKind::Seq | ValueKind::Iterable => {
            for candidate in container.try_iter()? {
                if equal(&candidate, item, budget, 0)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        kind => Err(invalid(format!("a {kind} contains nothing"))),
    }
}

/// `value[start:stop:step]` with Python's rules.
fn slice(value: &Value, bounds: [&Value; 3], budget: &Budget) -> Result<Value, Error> {
    let text: Option<Vec<char>> = match value.as_str() {
        Some(text) => {
            budget.charge(4 * text.len())?;
            Some(text.chars().collect())
        }
        None => None,
    };
    let list = match (&text, value.kind()) {
        (Some(_), _) => Vec::new(),
        (None, ValueKind::Undefined | ValueKind::None) => Vec::new(),
        (None, _) if is_list(value) => items(value, budget)?,
        (None, kind) => return Err(invalid(format!("a {kind} cannot be sliced"))),
    };
    let len = text.as_ref().map_or(list.len(), Vec::len);
    let picked = positions(bounds, len)?;
    Ok(match text {
        Some(text) => Value::from(picked.map(|at| text[at]).collect::<String>()),
        None => Value::from(picked.map(|at| list[at].clone()).collect::<Vec<_>>()),
    })
}

/// Positions `start:stop:step` picks out of `len` items.
fn positions(bounds: [&Value; 3], len: usize) -> Result<impl Iterator<Item = usize> + use<>, Error> {
    let bound = |value: &Value| -> Result<Option<i64>, Error> {
        if value.is_none() || value.is_undefined() {
            return Ok(None);
        }
        value.as_i64().map(Some).ok_or_else(|| invalid("a slice needs whole numbers"))
    };
    let [start, stop, step] = [bound(bounds[0])?, bound(bounds[1])?, bound(bounds[2])?];
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("a slice cannot have step 0"));
    }
    let len = i64::try_from(len).map_err(|_| too_large())?;
    // The places before the first and behind the last item that a bound can be cut to.
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let cut = |bound: Option<i64>, otherwise: i64| match bound {
        None => otherwise,
        Some(at) if at < 0 => at.saturating_add(len).clamp(low, high),
        Some(at) => at.clamp(low, high),
    };
    let (mut at, stop) =
        if step > 0 { (cut(start, low), cut(stop, high)) } else { (cut(start, high), cut(stop, low)) };
    Ok(std::iter::from_fn(move || {
        let inside = if step > 0 { at < stop } else { at > stop };
        let here = usize::try_from(at).ok().filter(|_| inside)?;
        at = at.saturating_add(step);
        Some(here)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(start: Option<i64>, stop: Option<i64>, step: Option<i64>, len: usize) -> Vec<usize> {
        let value = |b: Option<i64>| b.map_or(Value::from(()), Value::from);
        positions([&value(start), &value(stop), &value(step)], len).unwrap().collect()
    }

    #[test]
    fn slices_pick_what_python_picks() {
        assert_eq!(picked(Some(1), None, None, 4), [1, 2, 3]);
        assert_eq!(picked(None, Some(-1), None, 4), [0, 1, 2]);
        assert_eq!(picked(None, None, Some(-1), 4), [3, 2, 1, 0]);
        assert_eq!(picked(Some(-2), None, None, 4), [2, 3]);
        assert_eq!(picked(Some(2), Some(0), Some(-1), 4), [2, 1]);
        assert_eq!(picked(Some(9), None, None, 4), [0usize; 0]);
        assert_eq!(picked(Some(i64::MIN), Some(i64::MAX), Some(2), 3), [0, 2]);
        assert_eq!(picked(None, None, Some(-2), 0), [0usize; 0]);
    }
}
