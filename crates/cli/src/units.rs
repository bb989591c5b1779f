//! Numbers and tables for people: sizes with decimal units, columns that line up.
//!
//! Invariant: machines read `--json`, so nothing here needs to be parsed again.

/// `98.4 MB`: decimal units, as disks and hubs count.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// `1 chunk`, `2 chunks`.
pub(crate) fn count(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// Columns two spaces apart, each as wide as its widest cell; ends with a line break.
pub(crate) fn table<const N: usize>(header: &[String; N], rows: &[[String; N]]) -> String {
    let width = |i: usize| rows.iter().chain([header]).map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for row in [header].into_iter().chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let shown: Vec<_> = [0, 999, 1000, 98_362_432, 1_117_320_768].into_iter().map(bytes).collect();
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "98.4 MB", "1.1 GB"]);
    }

    #[test]
    fn one_thing_is_not_many() {
        assert_eq!([0, 1, 2].map(|n| count(n, "key")), ["0 keys", "1 key", "2 keys"]);
    }

    #[test]
    fn columns_line_up() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        assert_eq!(table(&row("A", "B"), &[row("long", "x"), row("é", "y")]), "A     B\nlong  x\né     y\n");
    }
}
