//! Constants of a crate, as numbers with units.

use super::{body, meaning};
use crate::tree::View;

/// Returns the row of a constant, or why there is none.
pub(super) fn row(view: &View<'_>, owner: &str, name: &str) -> Result<String, String> {
    let (before, value) = constant(view, owner, name, "pub const")
        .ok_or_else(|| format!("crate {owner} has no `pub const {name}`"))?;
    let docs = before.trim_end().lines().rev();
    let docs = docs.map_while(|line| line.trim().strip_prefix("///"));
    let mut docs: Vec<&str> = docs.map(str::trim).collect();
    docs.reverse();
    let meaning = meaning(&docs);
    let value = quantity(&value, &meaning, &|name| {
        let (_, value) = constant(view, owner, name, "const")?;
        Some(value)
    })
    .ok_or_else(|| format!("the value of {name} is no number: {value}"))?;
    Ok(format!("| `{name}` | {value} | {meaning} |"))
}

/// Returns the text before a constant, `NAME` or `TYPE::NAME`, and its value.
fn constant<'v>(
    view: &'v View<'_>,
    owner: &str,
    name: &str,
    keyword: &str,
) -> Option<(&'v str, String)> {
    let folder = format!("crates/{owner}/src/");
    let sources = view.sources.iter();
    let mut sources = sources.filter(|source| source.path.starts_with(&folder));
    let in_text = |text: &'v str, indent: &str, name: &str| {
        let head = format!("{keyword} {name}: ");
        let at = text.match_indices(&head).map(|(at, _)| at);
        let mut at = at.filter(|at| {
            let line = text.get(..*at).unwrap_or_default().rsplit('\n').next();
            let visibility = line.and_then(|line| line.strip_prefix(indent));
            visibility.is_some_and(|it| it.is_empty() || it.starts_with("pub"))
        });
        let at = at.next()?;
        let (before, rest) = text.split_at_checked(at)?;
        let (_, rest) = rest.split_once(" = ")?;
        let (value, _) = rest.split_once(';')?;
        let line = before.rfind('\n').unwrap_or(0);
        Some((before.get(..line)?, value.to_owned()))
    };
    match name.split_once("::") {
        Some((of, name)) => in_text(body(view, owner, &format!("impl {of} {{"))?, "    ", name),
        None => sources.find_map(|source| in_text(source.text, "", name)),
    }
}

/// Returns a value as text with its unit: of a `Duration`, or bytes if `meaning` names them.
fn quantity(
    value: &str,
    meaning: &str,
    constant: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let units = [("secs", "s"), ("millis", "ms"), ("micros", "µs")];
    for (name, unit) in units {
        let call = value.strip_prefix(&format!("Duration::from_{name}("));
        if let Some(argument) = call.and_then(|rest| rest.strip_suffix(')')) {
            return Some(format!("{} {unit}", grouped(evaluate(argument, constant)?)));
        }
    }
    let number = evaluate(value, constant)?;
    let is_in_bytes = meaning.to_lowercase().contains("bytes");
    let power = (number.is_power_of_two() && number >= 1 << 20)
        .then(|| format!(" (2^{})", number.trailing_zeros()));
    let unit = if is_in_bytes { " bytes" } else { "" };
    let power = power.unwrap_or_default();
    Some(format!("{}{unit}{power}", grouped(number)))
}

/// Evaluates sums, products and shifts of numbers and constants.
fn evaluate(text: &str, constant: &dyn Fn(&str) -> Option<String>) -> Option<u128> {
    let text = text.trim();
    for (sign, apply) in OPERATORS {
        if let Some((left, right)) = text.rsplit_once(sign) {
            return apply(evaluate(left, constant)?, evaluate(right, constant)?);
        }
    }
    let digits = text.replace('_', "");
    match digits.parse() {
        Ok(number) => Some(number),
        Err(_) => evaluate(&constant(text)?, &|name| {
            // A constant that refers to itself has no value.
            (name != text).then(|| constant(name))?
        }),
    }
}

type Operator = fn(u128, u128) -> Option<u128>;

/// The operators, from the weakest.
const OPERATORS: [(&str, Operator); 4] = [
    (" << ", |left, right| {
        left.checked_shl(u32::try_from(right).ok()?)
    }),
    (" - ", u128::checked_sub),
    (" + ", u128::checked_add),
    (" * ", u128::checked_mul),
];

/// Writes a number with a comma between groups of three digits.
fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut out = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && place % 3 == first {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_with_units() {
        let constant = |name: &str| {
            let known = [
                ("EACH", "1_120"),
                ("ALL", "58 * EACH"),
                ("LOOP", "LOOP + 1"),
            ];
            let found = known.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        };
        let quantity = |value, meaning| quantity(value, meaning, &constant);
        let is = |value, meaning, expected: &str| {
            assert_eq!(
                quantity(value, meaning).as_deref(),
                Some(expected),
                "{value}"
            );
        };
        is("64 * 1_024", "Longest, in bytes.", "65,536 bytes");
        is(
            "8 << 20",
            "Longest message, bytes: many.",
            "8,388,608 bytes (2^23)",
        );
        is("ALL", "Longest message, bytes.", "64,960 bytes");
        is("1_000", "Extra length, thousandths.", "1,000");
        is("2 * 3 + 4", "Channels.", "10");
        is("Duration::from_millis(25)", "Delay.", "25 ms");
        is("Duration::from_secs(5 * 60)", "Lifetime.", "300 s");
        for value in ["LOOP", "GONE", "size_of::<u8>()", "1 - 2"] {
            assert_eq!(quantity(value, ""), None, "{value}");
        }
    }
}
