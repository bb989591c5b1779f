//! Filters, tests and functions a chat template may use, all of them paid for.
//!
//! The list is what published templates use and what Python's Jinja offers for it; nothing reaches the file
//! system, the environment or another template. Results are Python's.
//!
//! Invariant: a filter walks or copies only what it has paid for, and compares only atoms or through `operators`.
//! Not here: operators (`operators`), methods such as `.strip()` (`methods`).

use std::sync::Arc;
use std::time::SystemTime;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, FormatStyle, State, filters, format_filter, functions};

use super::budget::{Budget, ITEM, MAX_ITEMS, NAMESPACE};
use super::operators::{compare, invalid, items, order};
use super::{clock, methods, print};

/// Adds everything to the environment; `now` is what `strftime_now` tells.
pub(super) fn install(env: &mut Environment<'_>, budget: &Arc<Budget>, now: SystemTime) {
    text_filters(env, budget);
    list_filters(env, budget);
    tests(env, budget);
    functions_of(env, budget, now);
    methods::install(env, budget);
}

/// Adds a filter that gets the budget, the value and the arguments.
fn filter<F>(env: &mut Environment<'_>, budget: &Arc<Budget>, name: &'static str, apply: F)
where
    F: Fn(&Budget, &Value, &[Value], &Kwargs) -> Result<Value, Error> + Send + Sync + 'static,
{
    let budget = budget.clone();
    env.add_filter(name, move |value: &Value, args: Rest<Value>| {
        let (args, kwargs): (&[Value], Kwargs) = minijinja::value::from_args(&args)?;
        apply(&budget, value, args, &kwargs)
    });
}

fn text_filters(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    filter(env, budget, "tojson", |budget, value, args, kwargs| {
        let indent = match args.first().cloned().or(kwargs.get("indent")?) {
            Some(width) if !width.is_none() => {
                let width = width.as_usize().filter(|&width| width <= 64);
                Some(width.ok_or_else(|| invalid("`indent` must be a number up to 64"))?)
            }
            _ => None,
        };
        print::json(value, indent, budget).map(Value::from)
    });
    filter(env, budget, "string", |budget, value, _, _| Ok(Value::from(print::text(value, budget)?)));
    filter(env, budget, "safe", |_, value, _, _| Ok(value.clone()));
    for name in ["escape", "e"] {
        filter(env, budget, name, |budget, value, _, _| {
            let text = print::text(value, budget)?;
            budget.string(text.len() * 5)?;
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            Ok(Value::from(text.replace('\'', "&#39;").replace('"', "&#34;")))
        });
    }
    for (name, method) in [
        ("trim", "strip"),
        ("upper", "upper"),
        ("lower", "lower"),
        ("capitalize", "capitalize"),
        ("title", "title"),
        ("replace", "replace"),
    ] {
        let budget = budget.clone();
        env.add_filter(name, move |state: &State, value: &Value, args: Rest<Value>| {
            let text = Value::from(print::text(value, &budget)?);
            methods::call(state, &budget, &text, method, &args)
        });
    }
    filter(env, budget, "indent", |budget, value, args, kwargs| {
        let text = print::text(value, budget)?;
        let option = |at: usize, name: &'static str| -> Result<Option<Value>, Error> {
            Ok(args.get(at).cloned().or(kwargs.get(name)?))
        };
        let width = option(0, "width")?.unwrap_or_else(|| Value::from(4));
        let width = match width.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(
                width
                    .as_usize()
                    .filter(|&n| n <= 256)
                    .ok_or_else(|| invalid("`indent` needs a width up to 256"))?,
            ),
        };
        let first = option(1, "first")?.is_some_and(|v| v.is_true());
        let blank = option(2, "blank")?.is_some_and(|v| v.is_true());
        let lines = text.matches('\n').count() + 1;
        budget.string(text.len().saturating_add(lines.saturating_mul(width.len())))?;
        let mut out = String::new();
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let wanted = if index == 0 { first } else { blank || !line.trim().is_empty() };
            if wanted {
                out.push_str(&width);
            }
            out.push_str(line);
        }
        Ok(Value::from(out))
    });
    filter(env, budget, "format", |budget, value, args, _| {
        let text = value.as_str().ok_or_else(|| invalid("`format` needs a string"))?;
        methods::check_format(text, args, budget)?;
        format_filter(FormatStyle::Printf, text, args).map(Value::from)
    });
    env.add_filter("int", |state: &State, value: &Value| {
        let text = value.as_str().map(|text| Value::from(text.trim()));
        filters::int(state, text.as_ref().unwrap_or(value)).or_else(|_| Ok::<_, Error>(Value::from(0)))
    });
    env.add_filter("float", |state: &State, value: &Value| {
        filters::float(state, value).or_else(|_| Ok::<_, Error>(Value::from(0.0)))
    });
    env.add_filter("bool", |value: &Value| value.is_true());
    env.add_filter("abs", filters::abs);
    env.add_filter("round", filters::round);
    for name in ["default", "d"] {
        filter(env, budget, name, |_, value, args, kwargs| {
            let other = args.first().cloned().or(kwargs.get("default_value")?);
            let lax = args.get(1).cloned().or(kwargs.get("boolean")?).is_some_and(|v| v.is_true());
            let missing = value.is_undefined() || (lax && !value.is_true());
            Ok(if missing { other.unwrap_or_else(|| Value::from("")) } else { value.clone() })
        });
    }
}

fn list_filters(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    for name in ["length", "count"] {
        filter(env, budget, name, |budget, value, _, _| length(value, budget).map(Value::from));
    }
    filter(env, budget, "list", |budget, value, _, _| Ok(Value::from(list(value, budget)?)));
    filter(env, budget, "first", |budget, value, _, _| {
        budget.charge(ITEM)?;
        Ok(value.try_iter()?.next().unwrap_or(Value::UNDEFINED))
    });
    filter(env, budget, "last", |budget, value, _, _| {
        Ok(list(value, budget)?.pop().unwrap_or(Value::UNDEFINED))
    });
    filter(env, budget, "reverse", |budget, value, _, _| {
        let mut items = list(value, budget)?;
        items.reverse();
        match value.as_str() {
            Some(_) => Ok(Value::from(items.iter().filter_map(Value::as_str).collect::<String>())),
            None => Ok(Value::from(items)),
        }
    });
    filter(env, budget, "join", |budget, value, args, kwargs| {
        let separator = match args.first().cloned().or(kwargs.get("d")?) {
            Some(separator) => print::text(&separator, budget)?,
            None => String::new(),
        };
        let attribute = args.get(1).cloned().or(kwargs.get("attribute")?);
        let items = keyed(list(value, budget)?, attribute.as_ref())?;
        join(items.into_iter().map(|(key, _)| key), &separator, budget)
    });
    filter(env, budget, "items", |budget, value, _, _| match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => pairs(value, budget).map(Value::from),
        kind => Err(invalid(format!("`items` needs a map, not a {kind}"))),
    });
    filter(env, budget, "dictsort", |budget, value, _, kwargs| {
        let by_value = kwargs.get::<Option<&str>>("by")? == Some("value");
        let which = Value::from(usize::from(by_value));
        let pairs = pairs(value, budget)?;
        sorted(keyed(pairs, Some(&which))?, kwargs, budget)
    });
    filter(env, budget, "sort", |budget, value, args, kwargs| {
        let attribute: Option<Value> = kwargs.get("attribute")?;
        if args.first().is_some_and(Value::is_true) {
            return Err(invalid("`sort` takes `reverse` by name"));
        }
        sorted(keyed(list(value, budget)?, attribute.as_ref())?, kwargs, budget)
    });
    filter(env, budget, "unique", |budget, value, _, kwargs| {
        let attribute: Option<Value> = kwargs.get("attribute")?;
        let mut kept: Vec<(Value, Value)> = Vec::new();
        for (key, item) in keyed(list(value, budget)?, attribute.as_ref())? {
            let mut seen = false;
            for (other, _) in &kept {
                seen = seen || compare(other, "==", &key, budget)?;
            }
            if !seen {
                kept.push((key, item));
            }
        }
        Ok(Value::from(kept.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
    });
    for (name, first) in [("min", true), ("max", false)] {
        filter(env, budget, name, move |budget, value, _, _| {
            let mut best = Value::UNDEFINED;
            for item in list(value, budget)? {
                if best.is_undefined() || order(&item, &best, budget)?.is_lt() == first {
                    best = item;
                }
            }
            Ok(best)
        });
    }
    filter(env, budget, "sum", |budget, value, _, kwargs| {
        let attribute: Option<Value> = kwargs.get("attribute")?;
        let mut whole = 0i64;
        let mut real = 0.0f64;
        let mut only_whole = true;
        for (key, _) in keyed(list(value, budget)?, attribute.as_ref())? {
            match key.as_i64().filter(|_| key.is_integer()) {
                Some(n) => whole = whole.checked_add(n).ok_or_else(|| invalid("a number is too large"))?,
                None => {
                    only_whole = false;
                    real += f64::try_from(key)?;
                }
            }
        }
        Ok(if only_whole { Value::from(whole) } else { Value::from(real + whole as f64) })
    });
    env.add_filter("attr", |value: &Value, name: &str| value.get_attr(name));
    let b = budget.clone();
    env.add_filter("map", move |state: &State, value: &Value, args: Rest<Value>| {
        filters::map(state, Value::from(list(value, &b)?), args)
    });
    let b = budget.clone();
    env.add_filter("select", move |state: &State, value: &Value, args: Rest<Value>| {
        picked(state, list(value, &b)?, None, &args, true)
    });
    let b = budget.clone();
    env.add_filter("reject", move |state: &State, value: &Value, args: Rest<Value>| {
        picked(state, list(value, &b)?, None, &args, false)
    });
    for (name, wanted) in [("selectattr", true), ("rejectattr", false)] {
        let b = budget.clone();
        env.add_filter(name, move |state: &State, value: &Value, args: Rest<Value>| {
            let path = args.first().ok_or_else(|| invalid("an attribute name is needed"))?;
            picked(state, list(value, &b)?, Some(path), &args[1..], wanted)
        });
    }
}

/// Items of a list, keys of a map, characters of a string; nothing for undefined, as in Python.
fn list(value: &Value, budget: &Budget) -> Result<Vec<Value>, Error> {
    if value.is_undefined() {
        return Ok(Vec::new());
    }
    items(value, budget)
}

/// `[key, value]` lists of a map.
pub(super) fn pairs(value: &Value, budget: &Budget) -> Result<Vec<Value>, Error> {
    let keys = list(value, budget)?;
    budget.charge(3 * ITEM * keys.len())?;
    let pair = |key: Value| -> Result<Value, Error> {
        let held = value.get_item(&key)?;
        // The pair sits in a list, two levels above what it holds.
        budget.depth(&held, 2)?;
        Ok(Value::from(vec![key, held]))
    };
    keys.into_iter().map(pair).collect()
}

/// Each item behind the value of its attribute (`a.b` walks two), or behind itself.
fn keyed(items: Vec<Value>, attribute: Option<&Value>) -> Result<Vec<(Value, Value)>, Error> {
    let key = |item: &Value| match attribute {
        Some(path) => at_path(item, path),
        None => Ok(item.clone()),
    };
    items.into_iter().map(|item| Ok((key(&item)?, item))).collect()
}

fn at_path(item: &Value, path: &Value) -> Result<Value, Error> {
    match path.as_str() {
        Some(path) => path.split('.').try_fold(item.clone(), |at, name| at.get_attr(name)),
        None => item.get_item(path),
    }
}

fn sorted(mut keyed: Vec<(Value, Value)>, kwargs: &Kwargs, budget: &Budget) -> Result<Value, Error> {
    let reverse = kwargs.get::<Option<bool>>("reverse")?.unwrap_or(false);
    let exact = kwargs.get::<Option<bool>>("case_sensitive")?.unwrap_or(false);
    if !exact {
        for (key, _) in &mut keyed {
            if let Some(text) = key.as_str() {
                budget.string(text.len() * 3)?;
                *key = Value::from(text.to_lowercase());
            }
        }
    }
    let mut failed = None;
    keyed.sort_by(|(a, _), (b, _)| {
        order(a, b, budget).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            std::cmp::Ordering::Equal
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let mut items: Vec<Value> = keyed.into_iter().map(|(_, item)| item).collect();
    if reverse {
        items.reverse();
    }
    Ok(Value::from(items))
}

/// Items, or their attribute, that pass a test; without a test, those that are true.
fn picked(
    state: &State,
    items: Vec<Value>,
    path: Option<&Value>,
    args: &[Value],
    wanted: bool,
) -> Result<Vec<Value>, Error> {
    let mut kept = Vec::new();
    for item in items {
        let subject = path.map_or_else(|| Ok(item.clone()), |path| at_path(&item, path))?;
        let passed = match args.split_first() {
            None => subject.is_true(),
            Some((name, rest)) => {
                let name = name.as_str().ok_or_else(|| invalid("the name of a test must be a string"))?;
                let all: Vec<Value> = std::iter::once(subject).chain(rest.iter().cloned()).collect();
                state.perform_test(name, &all)?
            }
        };
        if passed == wanted {
            kept.push(item);
        }
    }
    Ok(kept)
}

/// Number of items, or of characters.
fn length(value: &Value, budget: &Budget) -> Result<usize, Error> {
    if let Some(text) = value.as_str() {
        budget.charge(text.len() / 8)?;
        return Ok(text.chars().count());
    }
    match value.len() {
        Some(len) => Ok(len),
        None if value.is_undefined() => Ok(0),
        None => Ok(items(value, budget)?.len()),
    }
}

/// All items as text with `separator` between.
pub(super) fn join(
    items: impl Iterator<Item = Value>,
    separator: &str,
    budget: &Budget,
) -> Result<Value, Error> {
    let mut out = String::new();
    for (index, item) in items.enumerate() {
        let text = print::text(&item, budget)?;
        let separator = if index == 0 { "" } else { separator };
        budget.charge(separator.len() + text.len())?;
        out.push_str(separator);
        out.push_str(&text);
        if out.len() > super::budget::MAX_VALUE {
            budget.string(out.len())?;
        }
    }
    Ok(Value::from(out))
}

fn tests(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    use minijinja::tests;
    env.add_test("defined", tests::is_defined);
    env.add_test("undefined", tests::is_undefined);
    env.add_test("none", tests::is_none);
    env.add_test("boolean", tests::is_boolean);
    env.add_test("integer", tests::is_integer);
    env.add_test("float", tests::is_float);
    env.add_test("string", tests::is_string);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("odd", tests::is_odd);
    env.add_test("even", tests::is_even);
    env.add_test("divisibleby", tests::is_divisibleby);
    env.add_test("number", |v: &Value| v.is_number() || v.kind() == ValueKind::Bool);
    env.add_test("true", |v: &Value| v.kind() == ValueKind::Bool && v.is_true());
    env.add_test("false", |v: &Value| v.kind() == ValueKind::Bool && !v.is_true());
    env.add_test("callable", |v: &Value| v.kind() == ValueKind::Plain);
    // In Python strings and maps are sequences too, and templates rely on it.
    let sequence = |v: &Value| matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String);
    env.add_test("sequence", sequence);
    env.add_test("iterable", move |v: &Value| {
        sequence(v) || matches!(v.kind(), ValueKind::Iterable | ValueKind::Undefined)
    });
    for (names, op) in [
        (["eq", "equalto", "=="], "=="),
        (["ne", "ne", "!="], "!="),
        (["lt", "lessthan", "<"], "<"),
        (["le", "le", "<="], "<="),
        (["gt", "greaterthan", ">"], ">"),
        (["ge", "ge", ">="], ">="),
        (["in", "in", "in"], "in"),
        (["sameas", "sameas", "sameas"], "=="),
    ] {
        for name in names {
            let b = budget.clone();
            env.add_test(name, move |left: &Value, right: &Value| compare(left, op, right, &b));
        }
    }
}

fn functions_of(env: &mut Environment<'_>, budget: &Arc<Budget>, now: SystemTime) {
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(super::raised(message.as_str().unwrap_or_default()))
    });
    let b = budget.clone();
    env.add_function("strftime_now", move |format: &str| -> Result<String, Error> {
        b.charge(format.len() * 16)?;
        Ok(clock::format(now, format))
    });
    let b = budget.clone();
    env.add_function("namespace", move |defaults: Option<Value>| {
        b.charge(NAMESPACE)?;
        let made = functions::namespace(defaults)?;
        b.depth(&made, 0)?;
        Ok::<_, Error>(made)
    });
    let b = budget.clone();
    env.add_function("dict", move |value: Option<Value>, update: Kwargs| {
        b.list(update.args().count() + value.as_ref().and_then(Value::len).unwrap_or(0))?;
        let made = functions::dict(value, update)?;
        b.depth(&made, 0)?;
        Ok::<_, Error>(made)
    });
    let b = budget.clone();
    env.add_function("range", move |lower: i64, upper: Option<i64>, step: Option<i64>| {
        let (lower, upper) = upper.map_or((0, lower), |upper| (lower, upper));
        let step = step.unwrap_or(1);
        let span = if step > 0 { upper.checked_sub(lower) } else { lower.checked_sub(upper) };
        let count = match (span, step.unsigned_abs()) {
            (_, 0) => return Err(invalid("a range cannot have step 0")),
            (Some(span), step) => usize::try_from(u64::try_from(span).unwrap_or(0).div_ceil(step)),
            (None, _) => Ok(MAX_ITEMS + 1),
        };
        let count = count.unwrap_or(MAX_ITEMS + 1);
        b.list(count)?;
        Ok((0..count as i64).map(|n| Value::from(lower + n * step)).collect::<Vec<_>>())
    });
}
