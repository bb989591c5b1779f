//! Turns a template's source into instructions that cannot outgrow the budget.
//!
//! The engine counts steps, not work: one `+` may copy a gigabyte. So the parsed template is rebuilt with every
//! operator that can produce or walk a large value replaced by a filter of ours that counts (`a + b` becomes
//! `a|+(b)`; no template can name such a filter itself), raw text emitted like a value, and loops asking first.
//! Constructs that read other templates are refused here.
//!
//! Invariant: nesting is bounded before anything recurses over it, and no operator that copies or compares values
//! is left to the engine.
//! Not here: what the operators do (`operators`), the budget itself (`budget`).

use minijinja::machinery::ast::{self, BinOpKind, CallArg, CompareOpKind, Expr, Spanned, Stmt};
use minijinja::machinery::{CodeGenerator, Instructions, Span, Token, WhitespaceConfig, parse, tokenize};
use minijinja::value::Value;

use super::{TemplateError, described};

/// Tokens in one `{{ … }}` or `{% … %}`. Chains such as `a + a + …` nest without any bracket, so this bounds the depth
/// of every expression; the longest tag of the published templates has about 400.
const MAX_TAG_TOKENS: usize = 4_000;
/// Tags in a template, and `elif` branches, each of which nests inside the one before.
const MAX_TAGS: usize = 20_000;
const MAX_ELIFS: usize = 1_000;

/// White-space rules of the Hugging Face renderer.
const WHITESPACE: WhitespaceConfig =
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };

/// Parses, rebuilds and compiles a template.
///
/// # Errors
/// Syntax errors, nesting beyond the limits, and statements templates of models may not use; with their line.
pub(super) fn compile<'s>(name: &'s str, source: &'s str) -> Result<Instructions<'s>, TemplateError> {
    check_size(source)?;
    let template =
        parse(source, name, Default::default(), WHITESPACE).map_err(|error| described(&error, false))?;
    let template = statement(&template)?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&template);
    Ok(generator.finish().0)
}

/// Bounds what the parser and the compiler recurse over, before they do.
fn check_size(source: &str) -> Result<(), TemplateError> {
    let (mut tags, mut elifs, mut in_tag) = (0, 0, 0);
    let mut starts = false;
    for token in tokenize(source, false, Default::default(), WHITESPACE) {
        let (token, span) = token.map_err(|error| described(&error, false))?;
        match token {
            Token::BlockStart | Token::VariableStart => {
                tags += 1;
                in_tag = 0;
            }
            Token::Ident("elif") if starts => elifs += 1,
            _ => in_tag += 1,
        }
        starts = matches!(token, Token::BlockStart);
        if in_tag > MAX_TAG_TOKENS || tags > MAX_TAGS || elifs > MAX_ELIFS {
            return Err(refused("the template is too large or too deeply nested", span));
        }
    }
    Ok(())
}

fn refused(problem: impl Into<String>, span: Span) -> TemplateError {
    let line = usize::from(span.start_line);
    TemplateError::Failed { line: Some(line), message: format!("line {line}: {}", problem.into()) }
}

fn statements<'s>(list: &[Stmt<'s>]) -> Result<Vec<Stmt<'s>>, TemplateError> {
    list.iter().map(statement).collect()
}

fn statement<'s>(stmt: &Stmt<'s>) -> Result<Stmt<'s>, TemplateError> {
    let forbidden = |what: &str, span: Span| {
        refused(format!("`{what}` is not allowed: a chat template is one file"), span)
    };
    Ok(match stmt {
        Stmt::Template(s) => {
            Stmt::Template(Spanned::new(ast::Template { children: statements(&s.children)? }, s.span()))
        }
        Stmt::EmitExpr(s) => {
            Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: expression(&s.expr)? }, s.span()))
        }
        // The engine writes raw text without asking; a value goes through our formatter.
        Stmt::EmitRaw(s) => {
            let raw = Expr::Const(Spanned::new(ast::Const { value: Value::from(s.raw) }, s.span()));
            Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: raw }, s.span()))
        }
        Stmt::ForLoop(s) => Stmt::ForLoop(Spanned::new(
            ast::ForLoop {
                target: target(&s.target)?,
                iter: filter("for", expression(&s.iter)?, Vec::new(), s.iter.span()),
                filter_expr: s.filter_expr.as_ref().map(expression).transpose()?,
                recursive: s.recursive,
                body: statements(&s.body)?,
                else_body: statements(&s.else_body)?,
            },
            s.span(),
        )),
        Stmt::IfCond(s) => Stmt::IfCond(Spanned::new(
            ast::IfCond {
                expr: expression(&s.expr)?,
                true_body: statements(&s.true_body)?,
                false_body: statements(&s.false_body)?,
            },
            s.span(),
        )),
        Stmt::WithBlock(s) => {
            let pairs = s.assignments.iter().map(|(a, b)| Ok((target(a)?, expression(b)?)));
            let assignments = pairs.collect::<Result<_, TemplateError>>()?;
            Stmt::WithBlock(Spanned::new(
                ast::WithBlock { assignments, body: statements(&s.body)? },
                s.span(),
            ))
        }
        Stmt::Set(s) => Stmt::Set(Spanned::new(
            ast::Set { target: target(&s.target)?, expr: expression(&s.expr)? },
            s.span(),
        )),
        Stmt::SetBlock(s) => Stmt::SetBlock(Spanned::new(
            ast::SetBlock {
                target: target(&s.target)?,
                filter: s.filter.as_ref().map(expression).transpose()?,
                body: statements(&s.body)?,
            },
            s.span(),
        )),
        Stmt::FilterBlock(s) => Stmt::FilterBlock(Spanned::new(
            ast::FilterBlock { filter: expression(&s.filter)?, body: statements(&s.body)? },
            s.span(),
        )),
        Stmt::Macro(s) => Stmt::Macro(macro_of(s)?),
        Stmt::CallBlock(s) => Stmt::CallBlock(Spanned::new(
            ast::CallBlock { call: call(&s.call)?, macro_decl: macro_of(&s.macro_decl)? },
            s.span(),
        )),
        Stmt::Continue(s) => Stmt::Continue(Spanned::new(ast::Continue, s.span())),
        Stmt::Break(s) => Stmt::Break(Spanned::new(ast::Break, s.span())),
        Stmt::Do(s) => Stmt::Do(Spanned::new(ast::Do { call: call(&s.call)? }, s.span())),
        Stmt::AutoEscape(s) => return Err(forbidden("autoescape", s.span())),
        Stmt::Block(s) => return Err(forbidden("block", s.span())),
        Stmt::Import(s) => return Err(forbidden("import", s.span())),
        Stmt::FromImport(s) => return Err(forbidden("from", s.span())),
        Stmt::Extends(s) => return Err(forbidden("extends", s.span())),
        Stmt::Include(s) => return Err(forbidden("include", s.span())),
    })
}

fn macro_of<'s>(s: &Spanned<ast::Macro<'s>>) -> Result<Spanned<ast::Macro<'s>>, TemplateError> {
    let inner = ast::Macro {
        name: s.name,
        args: s.args.iter().map(target).collect::<Result<_, TemplateError>>()?,
        defaults: expressions(&s.defaults)?,
        body: statements(&s.body)?,
    };
    Ok(Spanned::new(inner, s.span()))
}

/// What is assigned to: names, attributes of a namespace, or a list of these.
fn target<'s>(expr: &Expr<'s>) -> Result<Expr<'s>, TemplateError> {
    match expr {
        Expr::List(e) => {
            let items = e.items.iter().map(target).collect::<Result<_, TemplateError>>()?;
            Ok(Expr::List(Spanned::new(ast::List { items }, e.span())))
        }
        _ => expression(expr),
    }
}

fn expressions<'s>(list: &[Expr<'s>]) -> Result<Vec<Expr<'s>>, TemplateError> {
    list.iter().map(expression).collect()
}

fn expression<'s>(expr: &Expr<'s>) -> Result<Expr<'s>, TemplateError> {
    let optional = |e: &Option<Expr<'s>>| e.as_ref().map(expression).transpose();
    Ok(match expr {
        Expr::Var(e) => Expr::Var(Spanned::new(ast::Var { id: e.id }, e.span())),
        Expr::Const(e) => Expr::Const(Spanned::new(ast::Const { value: e.value.clone() }, e.span())),
        Expr::Slice(e) => {
            let bound = |b: &Option<Expr<'s>>| -> Result<CallArg<'s>, TemplateError> {
                Ok(CallArg::Pos(optional(b)?.unwrap_or_else(|| constant(Value::from(()), e.span()))))
            };
            let bounds = vec![bound(&e.start)?, bound(&e.stop)?, bound(&e.step)?];
            filter("[:]", expression(&e.expr)?, bounds, e.span())
        }
        Expr::UnaryOp(e) => {
            let negates = matches!(e.op, ast::UnaryOpKind::Neg);
            let op = if negates { ast::UnaryOpKind::Neg } else { ast::UnaryOpKind::Not };
            Expr::UnaryOp(Spanned::new(ast::UnaryOp { op, expr: expression(&e.expr)? }, e.span()))
        }
        Expr::BinOp(e) => binary(e)?,
        Expr::Compare(e) => {
            let mut args = Vec::with_capacity(2 * e.ops.len());
            for op in &e.ops {
                args.push(CallArg::Pos(constant(Value::from(comparison(op.op)), e.span())));
                args.push(CallArg::Pos(expression(&op.expr)?));
            }
            filter("<=>", expression(&e.expr)?, args, e.span())
        }
        Expr::IfExpr(e) => Expr::IfExpr(Spanned::new(
            ast::IfExpr {
                test_expr: expression(&e.test_expr)?,
                true_expr: expression(&e.true_expr)?,
                false_expr: optional(&e.false_expr)?,
            },
            e.span(),
        )),
        Expr::Filter(e) => Expr::Filter(Spanned::new(
            ast::Filter { name: e.name, expr: optional(&e.expr)?, args: arguments(&e.args, e.span())? },
            e.span(),
        )),
        Expr::Test(e) => Expr::Test(Spanned::new(
            ast::Test { name: e.name, expr: expression(&e.expr)?, args: arguments(&e.args, e.span())? },
            e.span(),
        )),
        Expr::GetAttr(e) => {
            Expr::GetAttr(Spanned::new(ast::GetAttr { expr: expression(&e.expr)?, name: e.name }, e.span()))
        }
        Expr::GetItem(e) => Expr::GetItem(Spanned::new(
            ast::GetItem { expr: expression(&e.expr)?, subscript_expr: key(&e.subscript_expr)? },
            e.span(),
        )),
        Expr::Call(e) => Expr::Call(call(e)?),
        Expr::List(e) => {
            let list = Expr::List(Spanned::new(ast::List { items: expressions(&e.items)? }, e.span()));
            container(list, &e.items, e.span())
        }
        Expr::Map(e) => {
            let keys = e.keys.iter().map(key).collect::<Result<_, TemplateError>>()?;
            let map = ast::Map { keys, values: expressions(&e.values)? };
            container(Expr::Map(Spanned::new(map, e.span())), &e.values, e.span())
        }
    })
}

/// A list or map the template writes out: it may hold what it held before, so its depth is checked.
fn container<'s>(made: Expr<'s>, items: &[Expr<'s>], span: Span) -> Expr<'s> {
    match items.iter().all(|item| matches!(item, Expr::Const(_))) {
        true => made,
        false => filter("[,]", made, Vec::new(), span),
    }
}

/// A key of a map: hashing walks the whole value, so anything but a constant is checked first.
fn key<'s>(expr: &Expr<'s>) -> Result<Expr<'s>, TemplateError> {
    match expr {
        Expr::Const(_) => expression(expr),
        _ => Ok(filter("[]", expression(expr)?, Vec::new(), expr.span())),
    }
}

fn binary<'s>(e: &Spanned<ast::BinOp<'s>>) -> Result<Expr<'s>, TemplateError> {
    let (left, right) = (expression(&e.left)?, expression(&e.right)?);
    let name = match e.op {
        BinOpKind::Add => "+",
        BinOpKind::Mul => "*",
        BinOpKind::Pow => "**",
        BinOpKind::Concat => "~",
        // `and` and `or` choose a side, and these work on numbers alone.
        op @ (BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Sub
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem) => {
            return Ok(Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, e.span())));
        }
        BinOpKind::Eq => return Ok(compare("==", left, right, e.span())),
        BinOpKind::Ne => return Ok(compare("!=", left, right, e.span())),
        BinOpKind::Lt => return Ok(compare("<", left, right, e.span())),
        BinOpKind::Lte => return Ok(compare("<=", left, right, e.span())),
        BinOpKind::Gt => return Ok(compare(">", left, right, e.span())),
        BinOpKind::Gte => return Ok(compare(">=", left, right, e.span())),
        BinOpKind::In => return Ok(compare("in", left, right, e.span())),
    };
    Ok(filter(name, left, vec![CallArg::Pos(right)], e.span()))
}

fn compare<'s>(name: &'static str, left: Expr<'s>, right: Expr<'s>, span: Span) -> Expr<'s> {
    let args = vec![CallArg::Pos(constant(Value::from(name), span)), CallArg::Pos(right)];
    filter("<=>", left, args, span)
}

fn comparison(op: CompareOpKind) -> &'static str {
    match op {
        CompareOpKind::Eq => "==",
        CompareOpKind::Ne => "!=",
        CompareOpKind::Lt => "<",
        CompareOpKind::Lte => "<=",
        CompareOpKind::Gt => ">",
        CompareOpKind::Gte => ">=",
        CompareOpKind::In => "in",
        CompareOpKind::NotIn => "not in",
    }
}

fn call<'s>(e: &Spanned<ast::Call<'s>>) -> Result<Spanned<ast::Call<'s>>, TemplateError> {
    // The engine's own comparison of the last two values, which nothing bounds.
    if let Expr::GetAttr(method) = &e.expr
        && method.name == "changed"
    {
        return Err(refused("`loop.changed` is not supported", e.span()));
    }
    let inner = ast::Call { expr: expression(&e.expr)?, args: arguments(&e.args, e.span())? };
    Ok(Spanned::new(inner, e.span()))
}

fn arguments<'s>(args: &[CallArg<'s>], span: Span) -> Result<Vec<CallArg<'s>>, TemplateError> {
    let argument = |arg: &CallArg<'s>| {
        Ok(match arg {
            CallArg::Pos(e) => CallArg::Pos(expression(e)?),
            CallArg::Kwarg(name, e) => CallArg::Kwarg(name, expression(e)?),
            CallArg::PosSplat(_) | CallArg::KwargSplat(_) => {
                return Err(refused("`*` and `**` arguments are not supported", span));
            }
        })
    };
    args.iter().map(argument).collect()
}

fn constant<'s>(value: Value, span: Span) -> Expr<'s> {
    Expr::Const(Spanned::new(ast::Const { value }, span))
}

fn filter<'s>(name: &'static str, expr: Expr<'s>, args: Vec<CallArg<'s>>, span: Span) -> Expr<'s> {
    Expr::Filter(Spanned::new(ast::Filter { name, expr: Some(expr), args }, span))
}
