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

const ALL: Rules = Rules { thoughts: true, inside_thought: false, calls: true };
const INSIDE: Rules = Rules { inside_thought: true, ..ALL };
const CALLS: Rules = Rules { thoughts: false, ..ALL };
const NONE: Rules = Rules { thoughts: false, inside_thought: false, calls: false };

#[test]
fn parts_are_the_same_however_the_text_is_cut() {
    let weather = r#"{"name": "weather", "arguments": {"city": "Bonn", "days": 2}}"#;
    let arguments = r#"{"city":"Bonn","days":2}"#;
    let one = format!("<tool_call>\n{weather}\n</tool_call>");
    for (rules, reply, expected) in [
        (ALL, "<think>\nwhy é\n</think>\n\nso ".to_owned(), vec![thought("why é\n"), text("so ")]),
        (ALL, " \n<think>a</think>b".into(), vec![thought("a"), text("b")]),
        (ALL, "  plain <think>x</think>".into(), vec![text("  plain <think>x</think>")]),
        (ALL, "<think>never ends</thin".into(), vec![thought("never ends</thin")]),
        (ALL, "<thin".into(), vec![text("<thin")]),
        (INSIDE, "\nwhy</think>\nso".into(), vec![thought("why"), text("so")]),
        (NONE, format!("<think>a</think>{one}\n"), vec![text(&format!("<think>a</think>{one}\n"))]),
        (CALLS, one.clone(), vec![call("weather", arguments)]),
        (
            CALLS,
            format!("I look.\n\n{one}\n{one}\n"),
            vec![text("I look."), call("weather", arguments), call("weather", arguments)],
        ),
        (CALLS, format!("{one} and so"), vec![call("weather", arguments), text("and so")]),
        (CALLS, format!("<tool_call>{weather}"), vec![call("weather", arguments)]),
        (
            CALLS,
            "<tool_call>{\"name\": 5}</tool_call> x ".into(),
            vec![text("<tool_call>{\"name\": 5}</tool_call> x ")],
        ),
        (CALLS, "<tool_call>{\"name\": \"f\"}</tool_call>".into(), vec![call("f", "{}")]),
        (
            CALLS,
            "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>".into(),
            vec![call("f", "{\"a\":1}")],
        ),
        (
            CALLS,
            "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>".into(),
            vec![text("<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>")],
        ),
        (CALLS, "a < b <tool".into(), vec![text("a < b <tool")]),
        (CALLS, "ends in space \n".into(), vec![text("ends in space \n")]),
        (CALLS, "<tool_call>".repeat(3), vec![text(&"<tool_call>".repeat(3))]),
        (ALL, format!("<think>t</think>{one}"), vec![thought("t"), call("weather", arguments)]),
        (ALL, String::new(), vec![]),
    ] {
        assert_eq!(split(rules, [reply.as_str()]), expected, "{reply}");
        let letters: Vec<String> = reply.chars().map(String::from).collect();
        assert_eq!(split(rules, letters.iter().map(String::as_str)), expected, "{reply} letter by letter");
        for (at, _) in reply.char_indices() {
            let (a, b) = reply.split_at(at);
            assert_eq!(split(rules, [a, b]), expected, "{a:?} {b:?}");
        }
    }
}

#[test]
fn text_that_is_certain_is_not_held_back() {
    let mut splitter = Splitter::new(CALLS);
    assert_eq!(splitter.push("so far <"), [text("so far")]);
    assert_eq!(splitter.push("b> "), [text(" <b>")]);
    let mut splitter = Splitter::new(ALL);
    assert_eq!(splitter.push("<think>a b"), [thought("a b")]);
}
