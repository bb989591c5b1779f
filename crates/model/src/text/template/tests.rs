//! Templates as published models use them, Python's spelling of values, refusals, and hostile templates.

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::json;

use super::*;
use crate::{Gguf, GgufWriter};

/// A tokenizer with the control tokens the templates below write.
fn tokenizer() -> Tokenizer {
    let tokens = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "a", "b"];
    let mut file = GgufWriter::new();
    file.str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &[3, 3, 3, 3, 1, 1])
        .strings::<&str>("tokenizer.ggml.merges", &[])
        .u32("tokenizer.ggml.bos_token_id", 0)
        .u32("tokenizer.ggml.eos_token_id", 1);
    Tokenizer::from_gguf(Gguf::parse(file.finish()).unwrap().metadata()).unwrap()
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, &tokenizer()).unwrap()
}

fn options() -> RenderOptions {
    RenderOptions { now: Some(UNIX_EPOCH + Duration::from_secs(1_735_689_599)), ..RenderOptions::default() }
}

/// Result of a template for one user message `Hello`.
fn hello(source: &str) -> String {
    template(source).render(&[Message::user("Hello")], &options()).unwrap().text().to_string()
}

/// Messages from JSON, as a server gets them.
fn messages(value: Value) -> Vec<Message> {
    serde_json::from_value(value).unwrap()
}

const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

#[test]
fn a_conversation_renders_with_and_without_the_beginning_of_an_answer() {
    let chat = [Message::system("Be brief."), Message::user("Hi"), Message::assistant("Ho")];
    let mut options = options();
    let head = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n";
    let rendered = template(CHATML).render(&chat, &options).unwrap();
    assert_eq!(rendered.text(), format!("{head}<|im_start|>assistant\n"));
    options.add_generation_prompt = false;
    assert_eq!(template(CHATML).render(&chat, &options).unwrap().text(), head);
}

#[test]
fn white_space_follows_hugging_face() {
    let source =
        "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\nend\n";
    assert_eq!(hello(source), "Hello\nend");
    assert_eq!(hello("a {%- if true %} b {% endif -%} c{# note #}"), "a b c");
}

#[test]
fn values_are_spelled_as_python_spells_them() {
    assert_eq!(
        hello("{{ true }} {{ none }} {{ 1 }} {{ 2.0 }} {{ [1, 'a', \"it's\", none] }}"),
        "True None 1 2.0 [1, 'a', \"it's\", None]"
    );
    assert_eq!(
        hello("{{ {'a': {'b': false}} }} {{ 1e20 }} {{ 0.00001 }} {{ 1.5e300 }}"),
        "{'a': {'b': False}} 1e+20 1e-05 1.5e+300"
    );
    assert_eq!(hello("{{ undefined_name }}|{{ 'x' ~ 1 ~ none }}"), "|x1None");
}

#[test]
fn json_is_spelled_as_python_spells_it() {
    let source = "{{ {'a': [1, 2.0, true, none], 'é': 'q\"\\\\\n<b>', 'e': {}, 'l': []} | tojson }}";
    assert_eq!(hello(source), r#"{"a": [1, 2.0, true, null], "é": "q\"\\\n<b>", "e": {}, "l": []}"#);
    let source = "{{ {'a': [1], 'b': {}} | tojson(indent=2) }}";
    assert_eq!(hello(source), "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
}

#[test]
fn python_methods_filters_and_tests_work() {
    for (source, expected) in [
        ("{{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }}", "b"),
        (
            "{{ ' x '.strip() ~ '|' ~ 'abc'.startswith('ab') ~ '|' ~ 'abc'.endswith(('x', 'c')) }}",
            "x|True|True",
        ),
        ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"),
        ("{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}", "a1"),
        (
            "{{ {'a': 1}.get('b', 7) }}{{ {'a': 1}.get('b') }}{{ {'z': 1, 'b': 2}.keys()|list }}",
            "7None['z', 'b']",
        ),
        ("{{ 'a-b'.replace('-', '+').upper() }}{{ 'a,b'|replace(',', ';') }}", "A+Ba;b"),
        ("{{ 'xab'.removeprefix('x').removesuffix('b') }}{{ 'k=v'.partition('=') }}", "a['k', '=', 'v']"),
        ("{{ 'aXbX'.count('X') }}{{ 'ab'.count('') }}{{ [1, 2, 1].count(1) }}{{ 'abc'.find('c') }}", "2322"),
        ("{{ [1, 2, 3][::-1] }}{{ 'abcdef'[-3:] }}{{ [1, 2, 3][1:] }}", "[3, 2, 1]def[2, 3]"),
        ("{{ messages[::-1]|length }}{{ 'héé'|length }}{{ [3, 1, 2]|sort|join(',') }}", "131,2,3"),
        (
            "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|map(attribute='role')|join }}",
            "1user",
        ),
        ("{{ [{'n': 'b'}, {'n': 'A'}]|sort(attribute='n')|map(attribute='n')|list }}", "['A', 'b']"),
        (
            "{{ {'b': 1, 'A': 2}|dictsort }}{{ [1, 2, 2]|unique|list }}{{ [1, 4, 2]|max }}",
            "[['A', 2], ['b', 1]][1, 2]4",
        ),
        ("{{ 'a\nb'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}", "a\n  b|  a\n  b"),
        ("{{ nothing|default('d') }}{{ ''|default('d', true) }}{{ '3'|int + 1 }}{{ [1, 2]|sum }}", "dd43"),
        (
            "{{ 'x' in 'xyz' }}{{ 'k' in {'k': none} }}{{ 2 not in [1] }}{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}",
            "TrueTrueTrueTrueFalse",
        ),
        (
            "{{ 'a' is string }}{{ 'a' is sequence }}{{ {} is mapping }}{{ [] is iterable }}{{ x is defined }}",
            "TrueTrueTrueTrueFalse",
        ),
        (
            "{{ [1] + [2] }}{{ 'ab' * 2 }}{{ 2 ** 10 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 1 / 2 }}{{ 1 + 1.5 }}",
            "[1, 2]abab1024330.52.5",
        ),
        (
            "{{ 1 == 1.0 }}{{ [1, {'a': 2}] == [1, {'a': 2}] }}{{ 'a' == 1 }}{{ none == none }}",
            "TrueTrueFalseTrue",
        ),
        ("{{ '%s-%02d'|format('a', 7) }}{{ '{}+{}'.format(1, 'b') }}", "a-071+b"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "6",
        ),
        ("{% macro f(x, y='d') %}[{{ x }}{{ y }}]{% endmacro %}{{ f(1) }}{{ f(1, y=2) }}", "[1d][12]"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("{% for i in [1, 2] %}{{ loop.index0 }}{{ loop.last }}{% else %}none{% endfor %}", "0False1True"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x|upper }}{% filter upper %}b{% endfilter %}", "A1B"),
        ("{{ strftime_now('%d %b %Y') }}{{ bos_token }}{{ eos_token }}", "31 Dec 2024<s></s>"),
        ("{% generation %}x{% endgeneration %}{%- generation -%} y {%- endgeneration -%}", "xy"),
        ("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "TrueTrueTrue"),
    ] {
        assert_eq!(hello(source), expected, "{source}");
    }
}

/// Asserts on a template that walks tools and calls as Qwen's and Llama's do.
const TOOLS: &str = "{%- if tools %}{%- for t in tools %}{{ t | tojson }}\n{%- endfor %}{%- endif %}
{%- for m in messages %}
{%- if m.tool_calls %}{%- for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }}){%- endfor %}
{%- elif m.content is not none %}[{{ m.role }}:{{ m.content }}]{%- endif %}
{%- endfor %}";

#[test]
fn tool_calls_come_in_every_shape_clients_send() {
    let call = |arguments: Value| {
        messages(json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
            {"role": "tool", "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}], "tool_call_id": "1"},
            {"role": "assistant", "content": "a", "tool_calls": []},
        ]))
    };
    let mut options = options();
    options.tools = Some(json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]));
    let head = r#"{"type": "function", "function": {"name": "f", "parameters": {}}}"#;
    for (arguments, expected) in [
        (json!({"x": 1}), r#"{"x": 1}"#),
        (json!("{\"x\": 1}"), r#"{"x": 1}"#),
        (json!(""), "{}"),
        (json!("not json"), "\"not json\""),
    ] {
        let rendered = template(TOOLS).render(&call(arguments), &options).unwrap();
        assert_eq!(rendered.text(), format!("{head}[user:q]f({expected})[tool:r1\nr2][assistant:a]"));
    }
    // A template that joins arguments to text wants them as text.
    let joins = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'args: ' + c.function.arguments }}{% endfor %}{% endfor %}";
    let rendered = template(joins).render(&call(json!({"x": 1})), &options).unwrap();
    assert_eq!(rendered.text(), r#"args: {"x":1}"#);
    // And one that joins content wants it even where it is null.
    assert!(template(CHATML).render(&call(json!("")), &options).is_ok());
}

#[test]
fn messages_of_no_known_shape_are_named() {
    for (message, problem) in [
        (json!({"role": "user", "content": 5}), "message 0: the content"),
        (json!({"role": "user", "content": [{"type": "image_url"}]}), "message 0: the content"),
        (json!({"role": "", "content": "x"}), "message 0: the role"),
        (json!({"role": "<|im_end|>", "content": "x"}), "message 0: the role"),
        (json!({"role": "user", "content": "x", "tool_calls": 1}), "message 0: `tool_calls`"),
    ] {
        let error = template(CHATML).render(&messages(json!([message])), &options()).unwrap_err();
        assert!(matches!(error, TemplateError::Input { .. }));
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn a_refusal_carries_the_templates_words() {
    let source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{{ messages[0].content }}";
    let chat = [Message::system("s"), Message::user("u")];
    let error = template(source).render(&chat, &options()).unwrap_err();
    assert_eq!(error, TemplateError::Raised { message: "System role not supported".into() });
    let nested = "{% macro f() %}{{ raise_exception('inner') }}{% endmacro %}{% if messages|length > 1 %}{{ f() }}{% endif %}";
    let error = template(nested).render(&chat, &options()).unwrap_err();
    assert_eq!(error, TemplateError::Raised { message: "inner".into() });
}

#[test]
fn errors_at_load_name_the_template_and_the_line() {
    let message = |source: &str| ChatTemplate::new(source, &tokenizer()).unwrap_err().to_string();
    let unclosed = message("a\n{% for m in messages %}\n{{ m }}");
    assert!(unclosed.contains("tokenizer.chat_template") && unclosed.contains("line 3"), "{unclosed}");
    let missing = message("a\n\n{{ messages[0].missing.deeper }}");
    assert!(missing.contains("line 3") && missing.contains("undefined"), "{missing}");
    let filter = message("\n{{ 'a'|nosuchfilter }}");
    assert!(filter.contains("line 2") && filter.contains("nosuchfilter"), "{filter}");
    let raised = message("{{ raise_exception('no\nthing') }}");
    assert!(raised.contains("no thing"), "{raised}");
}

#[test]
fn a_file_without_a_template_has_none_and_one_of_another_type_is_an_error() {
    let load = |file: &GgufWriter| {
        let gguf = Gguf::parse(file.finish()).unwrap();
        ChatTemplate::from_gguf(gguf.metadata(), &tokenizer())
    };
    assert!(load(&GgufWriter::new()).unwrap().is_none());
    assert!(load(GgufWriter::new().str(KEY, " \n")).unwrap().is_none());
    assert!(load(GgufWriter::new().u32(KEY, 1)).unwrap_err().to_string().contains(KEY));
    let loaded = load(GgufWriter::new().str(KEY, CHATML)).unwrap().unwrap();
    assert_eq!(loaded.source(), CHATML);
}

/// Templates that must end as an error at load, quickly and in little memory.
fn hostile() -> Vec<(&'static str, String)> {
    let text = |s: &str| s.to_string();
    vec![
        (
            "loop",
            text(
                "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}x{% endfor %}{% endfor %}{% endfor %}",
            ),
        ),
        ("pow", text("{{ 9**9**9 }}")),
        ("mul", text("{{ 'a'*2000000000 }}")),
        (
            "double",
            text(
                "{% set ns=namespace(s='a') %}{% for i in range(60) %}{% set ns.s=ns.s+ns.s %}{% endfor %}{{ ns.s }}",
            ),
        ),
        (
            "double ~",
            text("{% set ns=namespace(s='a') %}{% for i in range(60) %}{% set ns.s=ns.s~ns.s %}{% endfor %}"),
        ),
        (
            "double list",
            text(
                "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s=ns.s+ns.s %}{% endfor %}{{ ns.s }}",
            ),
        ),
        (
            "list of lists",
            text(
                "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s=[ns.s,ns.s] %}{% endfor %}{{ ns.s }}",
            ),
        ),
        (
            "equal lists",
            text(
                "{% set ns=namespace(s=[1],t=[1]) %}{% for i in range(60) %}{% set ns.s=[ns.s,ns.s] %}{% set ns.t=[ns.t,ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
            ),
        ),
        (
            "list as key",
            text(
                "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s=[ns.s,ns.s] %}{% endfor %}{{ {ns.s: 1} }}",
            ),
        ),
        ("self", text("{% set ns=namespace() %}{% set ns.s=ns %}{{ ns }}")),
        ("self json", text("{% set ns=namespace() %}{% set ns.s=ns %}{{ ns|tojson }}")),
        (
            "self equal",
            text(
                "{% set ns=namespace() %}{% set ns.s=ns %}{% set b=namespace() %}{% set b.s=b %}{{ ns == b }}",
            ),
        ),
        (
            "deep",
            text(
                "{% set ns=namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s=[ns.s] %}{% endfor %}{{ ns.s }}",
            ),
        ),
        (
            "deep literals",
            format!(
                "{{% set ns=namespace(s=1) %}}{{% for i in range(100000) %}}{{% set ns.s={}ns.s{} %}}{{% endfor %}}",
                "[".repeat(60),
                "]".repeat(60)
            ),
        ),
        (
            "deep maps",
            text(
                "{% set ns=namespace(s=1) %}{% for i in range(100000) %}{% set ns.s={'a': ns.s} %}{% endfor %}",
            ),
        ),
        (
            "deep dicts",
            text(
                "{% set ns=namespace(s=1) %}{% for i in range(100000) %}{% set ns.s=dict(a=ns.s) %}{% endfor %}",
            ),
        ),
        (
            "deep pairs",
            text(
                "{% set ns=namespace(s=1) %}{% for i in range(100000) %}{% set ns.s=ns.items() %}{% endfor %}",
            ),
        ),
        (
            "deep namespaces",
            text(
                "{% set ns=namespace(s=1) %}{% for i in range(100000) %}{% set ns.s=namespace(p=ns.s) %}{% endfor %}",
            ),
        ),
        (
            "deep at the tail",
            format!(
                "{{% set h=namespace() %}}{{% set h.head=namespace() %}}{{% set h.tail=h.head %}}{{% for i in range(100000) %}}{{% set n=namespace() %}}{{% set h.tail.p={}n{} %}}{{% set h.tail=n %}}{{% endfor %}}",
                "[".repeat(60),
                "]".repeat(60)
            ),
        ),
        ("recmacro", text("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}")),
        ("recloop", text("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}")),
        ("nest", format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000))),
        ("nest lists", format!("{{{{ {}1{} }}}}", "[".repeat(20_000), "]".repeat(20_000))),
        ("nestif", "{% if 1 %}".repeat(5000) + &"{% endif %}".repeat(5000)),
        ("elifs", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(50_000))),
        ("sum chain", format!("{{{{ {}1 }}}}", "1+".repeat(300_000))),
        ("not chain", format!("{{{{ {}1 }}}}", "not ".repeat(200_000))),
        ("minus chain", format!("{{{{ {}1 }}}}", "- ".repeat(300_000))),
        ("attr chain", format!("{{{{ a{} }}}}", ".a".repeat(300_000))),
        ("filter chain", format!("{{{{ 'a'{} }}}}", "|trim".repeat(150_000))),
        ("constant", format!("{{{{ {}1 }}}}", "'a'*4000000~".repeat(60))),
        ("ssti", text("{{ ''.__class__.__mro__[1].__subclasses__() }}")),
        ("cycler", text("{{ cycler.__init__.__globals__.os.popen('id').read() }}")),
        ("include", text("{% include '/etc/passwd' %}")),
        ("include quietly", text("{% include '/etc/passwd' ignore missing %}")),
        ("import", text("{% import 'os' as o %}")),
        ("from", text("{% from 'os' import o %}")),
        ("extends", text("{% extends 'x' %}")),
        ("unclosed", text("{% for m in messages %}")),
        ("binary", text("\x00\x01{{")),
        ("raise", text("{{ raise_exception('x') }}")),
        ("huge", "a".repeat(8 << 20)),
        ("join", text("{{ (range(50000)|join)*40000 }}")),
        ("join twice", text("{{ range(50000)|join(range(50000)|join) }}")),
        ("replace", text("{{ ('a'*100000)|replace('a', 'b'*100000) }}")),
        ("replace empty", text("{{ ('a'*100000).replace('', 'b'*100000) }}")),
        ("indent", text("{{ ('\n'*4000000)|indent(256, true, true) }}")),
        ("json indent", text("{{ [[[[1]]]]|tojson(indent=100000000) }}")),
        ("escape", text("{{ ('<'*4000000)|e }}")),
        ("format width", text("{{ '%999999999d'|format(1) }}")),
        ("format width {}", text("{{ '{:>999999999}'.format(1) }}")),
        ("format width arg", text("{{ '{:{}}'.format(1, 999999999) }}")),
        ("count", text("{% for i in range(100000) %}{{ ('a'*4000000).count('') }}{% endfor %}")),
        (
            "scan",
            text(
                "{% set s='a'*4000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
            ),
        ),
        ("slice", text("{% set s='a'*4000000 %}{% for i in range(100000) %}{% set t=s[1:] %}{% endfor %}")),
        (
            "keep all",
            text(
                "{% set ns=namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l=ns.l+['a'*4000000] %}{% endfor %}",
            ),
        ),
        (
            "capture raw",
            format!(
                "{{% set x %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}",
                "r".repeat(500_000)
            ),
        ),
        ("output raw", format!("{{% for i in range(100000) %}}{}{{% endfor %}}", "r".repeat(500_000))),
        ("range", text("{{ range(10**9)|list|length }}")),
        ("range negative", text("{{ range(0, -9223372036854775807, -1)|length }}")),
        ("repeat list", text("{{ ([1]*100000*100000)|length }}")),
        ("sort nested", text("{{ [[1],[2]]|sort }}")),
        ("changed", text("{% for m in messages %}{{ loop.changed(m) }}{% endfor %}")),
        ("splat", text("{% macro f() %}{% endmacro %}{{ f(*range(100000)) }}")),
        ("split empty", text("{{ 'abc'.split('') }}")),
        ("upper", text("{% for i in range(100000) %}{{ ('ß'*1000000)|upper }}{% endfor %}")),
    ]
}

#[test]
fn hostile_templates_fail_at_load_in_time() {
    let tokenizer = tokenizer();
    for (name, source) in hostile() {
        let start = Instant::now();
        let result = ChatTemplate::new(&source, &tokenizer);
        let took = start.elapsed();
        assert!(result.is_err(), "{name} was accepted");
        // Alone it takes at most a quarter of this; tests share the machine.
        assert!(took < Duration::from_secs(4), "{name} took {took:?}");
    }
}

#[test]
fn a_template_that_turns_hostile_later_is_stopped_then() {
    let source = "{% if messages|length > 1 %}{% set ns=namespace(s='a') %}{% for i in range(60) %}{% set ns.s=ns.s+ns.s %}{% endfor %}{% endif %}ok";
    let chat = [Message::user("a"), Message::user("b")];
    let error = template(source).render(&chat, &options()).unwrap_err();
    assert!(matches!(error, TemplateError::Budget { .. }), "{error}");
    assert!(error.to_string().contains("4 MiB"), "{error}");
}

#[test]
fn long_conversations_are_within_the_budget() {
    let chat: Vec<Message> = (0..3000)
        .map(|n| if n % 2 == 0 { Message::user("word ".repeat(50)) } else { Message::assistant("ok") })
        .collect();
    let rendered = template(CHATML).render(&chat, &options()).unwrap();
    assert!(rendered.text().len() > 400_000);
    let one = [Message::user("x".repeat(3 << 20))];
    assert!(template(CHATML).render(&one, &options()).is_ok());
    let error = template(CHATML).render(&[Message::user("x".repeat(5 << 20))], &options()).unwrap_err();
    assert!(matches!(error, TemplateError::Budget { .. }), "{error}");
}

#[test]
fn extra_variables_reach_the_template_and_cannot_replace_the_messages() {
    let mut options = options();
    options.extra = serde_json::from_value(json!({"enable_thinking": false, "messages": "mine"})).unwrap();
    let source = "{{ enable_thinking is defined and not enable_thinking }}{{ messages[0].content }}";
    let rendered = template(source).render(&[Message::user("Hello")], &options).unwrap();
    assert_eq!(rendered.text(), "TrueHello");
}

#[test]
fn messages_read_from_json_and_write_back_the_same() {
    let value = json!({"role": "tool", "content": "x", "tool_call_id": "1", "name": "f"});
    let message: Message = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(message.text(), "x");
    assert_eq!(serde_json::to_value(message).unwrap(), value);
    let bare: Message = serde_json::from_value(json!({"role": "assistant"})).unwrap();
    assert_eq!((bare.text(), bare.content), (String::new(), Value::Null));
}
