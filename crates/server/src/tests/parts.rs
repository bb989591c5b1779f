//! Tests of thoughts and calls, however the text is cut.
#![cfg(test)]

use super::{Part, Rules, Splitter, ToolCall};

fn thought(text: &str) -> Part {
    Part::Thought(text.to_owned())
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

/// The parts of a reply that comes in `pieces`, with neighbours of one kind joined.
fn split<'a>(rules: Rules, pieces: impl IntoIterator<Item = &'a str>) -> Vec<Part> {
    let mut splitter = Splitter::new(rules);
    let mut parts: Vec<Part> = pieces.into_iter().flat_map(|piece| splitter.push(piece)).collect();
    parts.extend(splitter.finish());
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Part::Text(last)), Part::Text(more)) => *last += &more,
            (Some(Part::Thought(last)), Part::Thought(more)) => *last += &more,
            (_, part) => joined.push(part),
        }
    }
    joined
}

/// Rules under which replies may have thoughts, begin inside one, call `weather` or `f`.
fn rules(thoughts: bool, inside_thought: bool, calls: bool) -> Rules {
    let names = ["weather".to_owned(), "f".to_owned()];
    Rules { thoughts, inside_thought, calls: calls.then(|| names.into()) }
}

#[test]
fn parts_are_the_same_however_the_text_is_cut() {
    let weather = r#"{"name": "weather", "arguments": {"city": "Bonn", "days": 2}}"#;
    let arguments = r#"{"city":"Bonn","days":2}"#;
    let one = format!("<tool_call>\n{weather}\n</tool_call>");
    for (rules, reply, expected) in [
        (
            rules(true, false, true),
            "<think>\nwhy é\n</think>\n\nso ".to_owned(),
            vec![thought("why é\n"), text("so ")],
        ),
        (rules(true, false, true), " \n<think>a</think>b".into(), vec![thought("a"), text("b")]),
        (rules(true, false, true), "  plain <think>x</think>".into(), vec![text("  plain <think>x</think>")]),
        (rules(true, false, true), "<think>never ends</thin".into(), vec![thought("never ends</thin")]),
        (rules(true, false, true), "<thin".into(), vec![text("<thin")]),
        (rules(true, true, true), "\nwhy</think>\nso".into(), vec![thought("why"), text("so")]),
        (
            rules(false, false, false),
            format!("<think>a</think>{one}\n"),
            vec![text(&format!("<think>a</think>{one}\n"))],
        ),
        (rules(false, false, true), one.clone(), vec![call("weather", arguments)]),
        (
            rules(false, false, true),
            format!("I look.\n\n{one}\n{one}\n"),
            vec![text("I look."), call("weather", arguments), call("weather", arguments)],
        ),
        (
            rules(false, false, true),
            format!("{one} and so"),
            vec![call("weather", arguments), text("and so")],
        ),
        (rules(false, false, true), format!("<tool_call>{weather}"), vec![call("weather", arguments)]),
        (
            rules(false, false, true),
            "<tool_call>{\"name\": 5}</tool_call> x ".into(),
            vec![text("<tool_call>{\"name\": 5}</tool_call> x ")],
        ),
        (rules(false, false, true), "<tool_call>{\"name\": \"f\"}</tool_call>".into(), vec![call("f", "{}")]),
        (
            rules(false, false, true),
            "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>".into(),
            vec![call("f", "{\"a\":1}")],
        ),
        (
            rules(false, false, true),
            "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>".into(),
            vec![text("<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>")],
        ),
        (rules(false, false, true), "a < b <tool".into(), vec![text("a < b <tool")]),
        (rules(false, false, true), "ends in space \n".into(), vec![text("ends in space \n")]),
        (rules(false, false, true), "<tool_call>".repeat(3), vec![text(&"<tool_call>".repeat(3))]),
        (
            rules(true, false, true),
            format!("<think>t</think>{one}"),
            vec![thought("t"), call("weather", arguments)],
        ),
        (rules(true, false, true), String::new(), vec![]),
        (rules(false, false, true), format!("\n{weather}\n"), vec![call("weather", arguments)]),
        (rules(false, false, true), format!("```json\n{weather}\n```"), vec![call("weather", arguments)]),
        (
            rules(true, false, true),
            format!("<think>t</think>\n{weather}"),
            vec![thought("t"), call("weather", arguments)],
        ),
        (rules(false, false, false), weather.to_owned(), vec![text(weather)]),
        (
            rules(false, false, true),
            weather.replace("weather", "other"),
            vec![text(&weather.replace("weather", "other"))],
        ),
        (rules(false, false, true), format!("{weather} it is"), vec![text(&format!("{weather} it is"))]),
        (
            rules(false, false, true),
            format!("```json\n{weather}"),
            vec![text(&format!("```json\n{weather}"))],
        ),
        (rules(false, false, true), "```python\nx".into(), vec![text("```python\nx")]),
        (rules(false, false, true), "``".into(), vec![text("``")]),
        (rules(false, false, true), "{\"a\": 1}".into(), vec![text("{\"a\": 1}")]),
    ] {
        assert_eq!(split(rules.clone(), [reply.as_str()]), expected, "{reply}");
        let letters: Vec<String> = reply.chars().map(String::from).collect();
        assert_eq!(
            split(rules.clone(), letters.iter().map(String::as_str)),
            expected,
            "{reply} letter by letter"
        );
        for (at, _) in reply.char_indices() {
            let (a, b) = reply.split_at(at);
            assert_eq!(split(rules.clone(), [a, b]), expected, "{a:?} {b:?}");
        }
    }
}

#[test]
fn text_that_is_certain_is_not_held_back() {
    let mut splitter = Splitter::new(rules(false, false, true));
    assert_eq!(splitter.push("so far <"), [text("so far")]);
    assert_eq!(splitter.push("b> "), [text(" <b>")]);
    let mut splitter = Splitter::new(rules(true, false, true));
    assert_eq!(splitter.push("<think>a b"), [thought("a b")]);
}
