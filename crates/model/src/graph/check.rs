//! Refuses graphs a reader could stumble over.
//!
//! Every value is assigned before it is read, every width and shape agrees, every attention
//! layer has its own cache, and the head comes last and once.

use super::{Graph, Op, Rope, RopeScaling, ValueId, WeightId, WeightSpec};

/// What is wrong with a graph.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GraphError {
    /// An operation's shapes do not agree.
    #[error("operation {op} ({kind}): {what}")]
    Shape {
        /// Index of the operation.
        op: usize,
        /// Its name.
        kind: &'static str,
        /// What disagrees.
        what: String,
    },
    /// A rope's parameters make no sense.
    #[error("rope {rope}: {what}")]
    Rope {
        /// Index of the rope.
        rope: usize,
        /// What is wrong.
        what: String,
    },
    /// The graph does not end in exactly one head.
    #[error("the graph must end in its only head")]
    Head,
}

/// Checks the parts of a graph and joins them.
///
/// # Errors
/// The first thing found wrong.
pub(super) fn check(
    ops: Vec<Op>,
    weights: Vec<WeightSpec>,
    ropes: Vec<Rope>,
    widths: Vec<usize>,
) -> Result<Graph, GraphError> {
    for (i, rope) in ropes.iter().enumerate() {
        check_rope(rope, &weights).map_err(|what| GraphError::Rope { rope: i, what })?;
    }
    let mut checker = Checker { weights: &weights, ropes: &ropes, widths: &widths, kv_widths: Vec::new() };
    let mut assigned = vec![false; widths.len()];
    for (i, op) in ops.iter().enumerate() {
        let shape = |what| GraphError::Shape { op: i, kind: kind(op), what };
        if let Some(unset) = op.inputs().iter().find(|v| !assigned.get(v.0).copied().unwrap_or(false)) {
            return Err(shape(format!("reads value {} before it is assigned", unset.0)));
        }
        checker.op(op).map_err(shape)?;
        if let Some(out) = op.output() {
            match assigned.get_mut(out.0) {
                Some(done) if !*done => *done = true,
                _ => return Err(shape(format!("assigns value {} twice", out.0))),
            }
        }
    }
    let heads = ops.iter().filter(|op| matches!(op, Op::Head { .. })).count();
    let Some(Op::Head { weight, .. }) = ops.last() else { return Err(GraphError::Head) };
    if heads != 1 {
        return Err(GraphError::Head);
    }
    let vocab = weights[weight.0].n_out;
    let kv_widths = checker.kv_widths;
    Ok(Graph { n_layers: kv_widths.len(), kv_widths, vocab, ops, weights, ropes, widths })
}

fn check_rope(rope: &Rope, weights: &[WeightSpec]) -> Result<(), String> {
    if rope.dims == 0 || !rope.dims.is_multiple_of(2) {
        return Err(format!("{} rotated elements: a positive even number is needed", rope.dims));
    }
    if !(rope.base.is_finite() && rope.base > 0.0) {
        return Err(format!("the frequency base {} is not positive", rope.base));
    }
    match rope.scaling {
        RopeScaling::None => Ok(()),
        RopeScaling::Linear(factor) if factor.is_finite() && factor > 0.0 => Ok(()),
        RopeScaling::Linear(factor) => Err(format!("the scaling factor {factor} is not positive")),
        RopeScaling::PerFrequency(weight) => match weights.get(weight.0) {
            Some(spec) if spec.n_out == 1 && spec.k == rope.dims / 2 => Ok(()),
            _ => Err(format!("needs {} frequency factors", rope.dims / 2)),
        },
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
            let sane =
                [factor, beta_fast, beta_slow, attention_factor].iter().all(|x| x.is_finite() && *x > 0.0);
            if sane && original_context > 0 {
                Ok(())
            } else {
                Err("a YaRN parameter is not positive".to_owned())
            }
        }
    }
}

fn kind(op: &Op) -> &'static str {
    match op {
        Op::Embed { .. } => "Embed",
        Op::RmsNorm { .. } => "RmsNorm",
        Op::Linear { .. } => "Linear",
        Op::Rope { .. } => "Rope",
        Op::Attention { .. } => "Attention",
        Op::GatedMlp { .. } => "GatedMlp",
        Op::Add { .. } => "Add",
        Op::Tap { .. } => "Tap",
        Op::Head { .. } => "Head",
    }
}

struct Checker<'a> {
    weights: &'a [WeightSpec],
    ropes: &'a [Rope],
    widths: &'a [usize],
    kv_widths: Vec<usize>,
}

impl Checker<'_> {
    fn op(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Embed { weight, scale, out } => {
                let table = self.weight(weight)?;
                same("the table's width", table.k, self.width(out)?)?;
                if scale.is_finite() { Ok(()) } else { Err("the scale is not finite".to_owned()) }
            }
            Op::RmsNorm { x, weight, eps, group, out } => {
                let (width, norm) = (self.width(x)?, self.weight(weight)?);
                same("the output width", self.width(out)?, width)?;
                same("the norm's rows", norm.n_out, 1)?;
                same("the norm's length", norm.k, group)?;
                divides("the group", group, width)?;
                if eps.is_finite() && eps >= 0.0 { Ok(()) } else { Err(format!("eps is {eps}")) }
            }
            Op::Linear { x, weight, bias, out } => {
                let matrix = self.weight(weight)?;
                same("the matrix's inputs", matrix.k, self.width(x)?)?;
                same("the matrix's outputs", matrix.n_out, self.width(out)?)?;
                if let Some(bias) = bias {
                    let bias = self.weight(bias)?;
                    same("the bias's rows", bias.n_out, 1)?;
                    same("the bias's length", bias.k, matrix.n_out)?;
                }
                Ok(())
            }
            Op::Rope { x, rope, head_dim, out } => {
                let width = self.width(x)?;
                same("the output width", self.width(out)?, width)?;
                divides("the head size", head_dim, width)?;
                let rope = self.ropes.get(rope.0).ok_or("names an unknown rope")?;
                if rope.dims <= head_dim {
                    Ok(())
                } else {
                    Err(format!("rotates {} of {head_dim} elements", rope.dims))
                }
            }
            Op::Attention { q, k, v, layer, n_heads, n_kv_heads, head_dim, window, scale, out } => {
                divides("the number of key-value heads", n_kv_heads, n_heads)?;
                let (q_width, kv_width) = (product(n_heads, head_dim)?, product(n_kv_heads, head_dim)?);
                same("the query width", self.width(q)?, q_width)?;
                same("the key width", self.width(k)?, kv_width)?;
                same("the value width", self.width(v)?, kv_width)?;
                same("the output width", self.width(out)?, q_width)?;
                same("the layer", layer, self.kv_widths.len())?;
                if window == Some(0) {
                    return Err("a window of 0 positions sees nothing".to_owned());
                }
                if !scale.is_finite() {
                    return Err("the scale is not finite".to_owned());
                }
                self.kv_widths.push(kv_width);
                Ok(())
            }
            Op::GatedMlp { x, gate, up, down, out, .. } => {
                let (gate, up, down) = (self.weight(gate)?, self.weight(up)?, self.weight(down)?);
                same("the gate's inputs", gate.k, self.width(x)?)?;
                same("the up projection's inputs", up.k, gate.k)?;
                same("the up projection's outputs", up.n_out, gate.n_out)?;
                same("the down projection's inputs", down.k, gate.n_out)?;
                same("the down projection's outputs", down.n_out, self.width(out)?)
            }
            Op::Add { a, b, out } => {
                same("the second width", self.width(b)?, self.width(a)?)?;
                same("the output width", self.width(out)?, self.width(a)?)
            }
            Op::Tap { layer, .. } => same("the layer", layer + 1, self.kv_widths.len()),
            Op::Head { x, weight } => same("the head's inputs", self.weight(weight)?.k, self.width(x)?),
        }
    }

    fn width(&self, value: ValueId) -> Result<usize, String> {
        self.widths.get(value.0).copied().ok_or_else(|| format!("names the unknown value {}", value.0))
    }

    fn weight(&self, id: WeightId) -> Result<&WeightSpec, String> {
        let spec = self.weights.get(id.0).ok_or_else(|| format!("names the unknown weight {}", id.0))?;
        if spec.n_out == 0 || spec.k == 0 {
            return Err(format!("{} is empty", spec.name));
        }
        Ok(spec)
    }
}

fn same(what: &str, is: usize, must_be: usize) -> Result<(), String> {
    if is == must_be { Ok(()) } else { Err(format!("{what} is {is} and must be {must_be}")) }
}

fn divides(what: &str, part: usize, whole: usize) -> Result<(), String> {
    if part != 0 && whole.is_multiple_of(part) {
        Ok(())
    } else {
        Err(format!("{what} is {part}, which does not divide {whole}"))
    }
}

fn product(a: usize, b: usize) -> Result<usize, String> {
    a.checked_mul(b).ok_or_else(|| format!("{a} times {b} is too large"))
}

#[cfg(test)]
mod tests {
    use super::super::build::Heads;
    use super::super::{Activation, GraphBuilder, RopeStyle};
    use super::*;

    fn heads() -> Heads {
        Heads { n_heads: 4, n_kv_heads: 2, head_dim: 2, window: None, scale: 0.5 }
    }

    fn tiny(heads: Heads, q_width: usize, dims: usize) -> Result<Graph, GraphError> {
        let mut g = GraphBuilder::new();
        let table = g.matrix("token_embd.weight", 10, 8);
        let rope = g.rope_table(Rope { style: RopeStyle::Neox, dims, base: 1e4, scaling: RopeScaling::None });
        let [wq, wk, wv] = [g.matrix("q", q_width, 8), g.matrix("k", 4, 8), g.matrix("v", 4, 8)];
        let mlp = [g.matrix("gate", 12, 8), g.matrix("up", 12, 8), g.matrix("down", 8, 12)];
        let norm = g.vector("norm", 8);
        let x = g.embed(table, 1.0);
        let h = g.norm(x, norm, 1e-5);
        let (q, k, v) = (g.linear(h, wq, None), g.linear(h, wk, None), g.linear(h, wv, None));
        let (q, k) = (g.rope(q, rope, 2), g.rope(k, rope, 2));
        let a = g.attention([q, k, v], 0, heads);
        let x = g.add(x, a);
        let m = g.gated_mlp(x, mlp, Activation::Silu);
        let x = g.add(x, m);
        g.tap(x, 0);
        g.finish(x, table)
    }

    #[test]
    fn a_sound_graph_passes() {
        let graph = tiny(heads(), 8, 2).unwrap();
        assert_eq!((graph.vocab(), graph.n_layers(), graph.kv_width(0)), (10, 1, 4));
    }

    #[test]
    fn wrong_widths_are_named() {
        let error = tiny(heads(), 6, 2).unwrap_err().to_string();
        assert_eq!(error, "operation 7 (Attention): the query width is 6 and must be 8");
    }

    #[test]
    fn odd_heads_are_refused() {
        let error = tiny(Heads { n_kv_heads: 3, ..heads() }, 8, 2).unwrap_err().to_string();
        assert!(error.contains("does not divide 4"), "{error}");
        assert!(tiny(Heads { n_kv_heads: 0, ..heads() }, 8, 2).is_err());
        assert!(tiny(Heads { window: Some(0), ..heads() }, 8, 2).is_err());
    }

    #[test]
    fn ropes_fit_their_heads() {
        assert!(matches!(tiny(heads(), 8, 3), Err(GraphError::Rope { .. })));
        let error = tiny(heads(), 8, 4).unwrap_err().to_string();
        assert!(error.contains("rotates 4 of 2"), "{error}");
    }

    #[test]
    fn values_are_assigned_before_they_are_read() {
        let weights = vec![WeightSpec { name: "w".to_owned(), n_out: 4, k: 4 }];
        let op = Op::Add { a: ValueId(0), b: ValueId(1), out: ValueId(2) };
        let head = Op::Head { x: ValueId(2), weight: WeightId(0) };
        let error = check(vec![op, head], weights, Vec::new(), vec![4, 4, 4]).unwrap_err();
        assert!(error.to_string().contains("before it is assigned"), "{error}");
    }

    #[test]
    fn a_graph_needs_its_head_last() {
        assert_eq!(check(Vec::new(), Vec::new(), Vec::new(), Vec::new()).unwrap_err(), GraphError::Head);
    }
}
